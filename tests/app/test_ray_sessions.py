"""What Ray starts is out of reach of the terminal's Ctrl-C, and is found again when it has to end."""

import os
import sys
import time
from contextlib import suppress

import psutil
import pytest
from ray._private.services import start_ray_process

from app.ops.ray_sessions import RaySessions

#: Starts a child of its own, as the raylet does, and says its process id.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


@pytest.fixture
def family(tmp_path):
    """The sessions, a process of Ray's making in one of them, and its child."""
    sessions = RaySessions()
    told = tmp_path / "child"
    with sessions.around_start():
        process = start_ray_process([sys.executable, "-c", PARENT, str(told)], "test", fate_share=True).process
    while not (told.exists() and told.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    child = psutil.Process(int(told.read_text()))
    yield sessions, process, child
    process.kill()
    process.wait()
    with suppress(psutil.NoSuchProcess):
        child.kill()


def test_processes_and_their_children_are_out_of_the_terminals_group(family):
    sessions, process, child = family
    assert os.getsid(process.pid) == os.getsid(child.pid) == process.pid != os.getsid(0)
    assert set(sessions.kill()) == {process.pid, child.pid}


def test_children_that_outlive_their_parent_end_as_well(family):
    sessions, process, child = family
    process.kill()
    process.wait()
    assert child.is_running()
    sessions.end(0.2)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_other_processes_are_left_alone(family):
    _, process, child = family
    assert RaySessions().kill() == []
    assert process.poll() is None
    assert child.is_running()


def test_after_the_start_processes_are_started_as_ever(family):
    process = start_ray_process([sys.executable, "-c", "import time; time.sleep(60)"], "test", fate_share=True).process
    assert os.getsid(process.pid) == os.getsid(0)
    process.kill()
    process.wait()
