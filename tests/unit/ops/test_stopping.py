"""Signals become an event, and whoever waits for work stops waiting when it is set."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from app.config.local import ROOT
from app.ops import ingest
from app.ops.stopping import until_stopped

PROGRAM = """
import signal, threading, time
from app.ops.stopping import Signals
signals = Signals(threading.Event(), lambda: print("stopping", flush=True))
signals.last = lambda: print("killed", flush=True)
signals.catch()
print("ready", flush=True)
while not signals.stop.wait(0.001):
    pass
print("asked", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_one_ends(first):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = process.stdout
    assert lines.readline() == "ready\n"
    process.send_signal(first)
    assert [lines.readline(), lines.readline()] == ["stopping\n", "asked\n"]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "killed\n"
    assert process.returncode == 130


BREAKING = """
import threading, time
from app.ops.stopping import Signals
signals = Signals(threading.Event(), lambda: print("stopping", flush=True))
signals.catch()
try:
    with signals.breaking():
        print("ready", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    assert signals.stop.wait(10)
    print("broken off", flush=True)
"""


def test_a_signal_breaks_off_what_cannot_be_asked():
    process = subprocess.Popen([sys.executable, "-c", BREAKING], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "stopping\nbroken off\n"
    assert process.returncode == 0


def test_work_that_ends_gives_its_result_or_its_error():
    assert until_stopped(lambda: 42, threading.Event()) == 42
    with pytest.raises(ZeroDivisionError):
        until_stopped(lambda: 1 / 0, threading.Event())


def test_waiting_ends_with_the_event_and_with_the_time():
    release, stop = threading.Event(), threading.Event()
    began = time.monotonic()
    assert until_stopped(lambda: release.wait(30), stop, seconds=0.3) is None
    threading.Timer(0.3, stop.set).start()
    assert until_stopped(lambda: release.wait(30), stop) is None
    assert time.monotonic() - began < 10
    release.set()


def test_indexing_that_was_stopped_sends_and_tells_nothing(tmp_path, capsys):
    (tmp_path / "a.md").write_text("text")
    stop = threading.Event()
    stop.set()
    arguments = ["--collection", "docs", str(tmp_path / "a.md")]
    assert ingest.main(["--store", str(tmp_path / "s"), "--embedder", "fake", *arguments], stop) == 130
    assert ingest.main(["--url", "http://127.0.0.1:9", *arguments], stop) == 130
    assert capsys.readouterr() == ("", "")
