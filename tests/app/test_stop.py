"""Ctrl-C during the start: a terminal sends it to the whole process group, and everything is gone soon after."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.config.local import ROOT
from tests.app.baton import Baton

STOP_SECONDS = 30  # 20 on a machine that does nothing else


def lives(process):
    """Tell whether a process is neither gone nor a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Run:
    """``make run``, as a terminal starts it."""

    def __init__(self, data):
        command = [sys.executable, "-m", "app.ops.run", "--data", str(data)]
        command += ["--port", "23000", "--metrics-port", "23464", "--dashboard-port", "23265"]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def said(self):
        """All that was printed so far."""
        return "".join(self.lines)

    def wait_for(self, condition, what):
        Baton.wait_for(lambda: condition() or self.process.poll() is not None, 120, what)
        assert self.process.poll() is None, self.said

    def interrupt(self):
        """Press Ctrl-C; return the exit code and the seconds that the stop took."""
        began = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(timeout=120)
        took = time.monotonic() - began
        self._reader.join(timeout=30)
        self.process.stdout.close()
        return code, took

    def processes(self):
        """Return all processes of the run."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def files(self):
        """Return the files in shared memory that the run's processes map."""
        found = set()
        for process in self.processes():
            with suppress(psutil.Error):
                found |= {Path(place.path) for place in process.memory_maps() if place.path.startswith("/dev/shm/")}
        return found

    def is_starting_a_replica(self):
        """Tell whether a deployment's process is there."""
        for process in self.processes():
            with suppress(psutil.Error):
                if "ServeReplica" in " ".join(process.cmdline()):
                    return True
        return False

    def close(self):
        """End what a failed test left: the second Ctrl-C kills."""
        for _ in range(2):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                time.sleep(0.5)
        self.process.wait(timeout=60)


@pytest.fixture
def run(models, tmp_path):
    """A run that has just begun to start Ray."""
    (tmp_path / "models").symlink_to(models)
    run = Run(tmp_path)
    try:
        run.wait_for(lambda: "starting Ray" in run.said, "Ray")
        yield run
    finally:
        run.close()


MOMENTS = {"Ray starts": lambda run: len(run.processes()) > 3, "a replica starts": Run.is_starting_a_replica}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_during_the_start_ends_everything_soon(run, moment):
    run.wait_for(lambda: MOMENTS[moment](run), moment)
    processes, files = run.processes(), run.files()
    code, took = run.interrupt()
    told = [line.partition("] ")[2].strip() for line in run.lines]
    assert (code, told[-2:]) == (0, ["stopping", "stopped"]), run.said
    assert took < STOP_SECONDS
    assert not [process for process in processes if lives(process)]
    assert not [path for path in files if path.exists()]
