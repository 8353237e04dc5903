"""Only what nobody uses any more is removed from shared memory, and only what came after us."""

import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import pytest

from app.deployments import shared_memory
from app.deployments.shared_memory import FOLDER, YOUNG_SECONDS, remove_orphans, session_began

#: Holds a segment of the given name in the given way until its standard input ends.
HOLD = """
import mmap, os, sys
fd = os.open(f"/dev/shm/{sys.argv[1]}", os.O_RDWR)
if sys.argv[2] == "mapped":
    held = mmap.mmap(fd, 0)
    os.close(fd)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(name, way):
    """A living process that maps the segment, or only has it open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name, way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.communicate()


@pytest.fixture
def began():
    """A moment before every segment of the test; the kernel's clock for files ticks in steps."""
    return time.time() - 0.1


@pytest.fixture
def segment():
    """Makes segments as Python does and lets go of them, as a process that is killed would."""
    names = []

    def make():
        memory = SharedMemory(create=True, size=4096)
        resource_tracker.unregister(f"/{memory.name}", "shared_memory")
        memory.close()
        names.append(memory.name)
        return memory.name

    yield make
    for name in names:
        (FOLDER / name).unlink(missing_ok=True)


@pytest.fixture
def grown_up(monkeypatch):
    """Files count as old at once."""
    monkeypatch.setattr(shared_memory, "YOUNG_SECONDS", 0.0)


@pytest.mark.parametrize("way", ["mapped", "open"])
def test_a_segment_goes_when_its_last_user_is_gone(segment, began, grown_up, way):
    name = segment()
    with holder(name, way):
        assert name not in remove_orphans(began)
        assert (FOLDER / name).exists()
    assert name in remove_orphans(began)
    assert not (FOLDER / name).exists()


def test_the_memory_of_another_engine_stays(segment, began, grown_up):
    orphan, used = segment(), segment()
    with holder(used, "mapped"):
        assert orphan in remove_orphans(began)
        assert (FOLDER / used).exists()


def test_what_was_there_before_the_session_stays(segment, grown_up):
    name = segment()
    assert name not in remove_orphans(time.time() + 0.1)
    assert (FOLDER / name).exists()


def test_a_young_file_stays_until_patience_sees_it_grow_up(segment, began):
    name = segment()
    assert name not in remove_orphans(began)
    assert (FOLDER / name).exists()
    assert name in remove_orphans(began, patience=YOUNG_SECONDS + 2)


def test_semaphores_go_and_other_names_stay(tmp_path, began, grown_up):
    for name in ("psm_1", "sem.mp-1", "sem.other", "plasma", "baton-arena-1"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "psm_link").symlink_to("/etc/hostname")
    assert {"psm_1", "sem.mp-1"} <= set(remove_orphans(began, folder=tmp_path))
    assert {"sem.other", "plasma", "baton-arena-1"} <= {path.name for path in tmp_path.iterdir()}


def test_a_semaphore_in_use_stays(began, grown_up):
    context = multiprocessing.get_context("spawn")  # keeps the name; the one for `fork` unlinks it at once
    before = set(FOLDER.glob("sem.mp-*"))
    lock = context.Lock()
    (path,) = set(FOLDER.glob("sem.mp-*")) - before
    assert path.name not in remove_orphans(began)
    assert path.exists()
    del lock


def test_another_users_segment_stays(segment, began, grown_up, monkeypatch):
    name = segment()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert name not in remove_orphans(began)


def test_the_session_began_with_the_parent_process():
    code = "import time; from app.deployments.shared_memory import session_began; print(time.time(), session_began())"
    before = session_began()
    shell = subprocess.run(
        ["sh", "-c", f"sleep 1.5; {sys.executable} -c '{code}'; true"], capture_output=True, text=True, check=True
    )
    now, began = map(float, shell.stdout.split())
    assert before < began < now - 1
