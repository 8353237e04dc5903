"""Removes what an engine's processes leave in shared memory.

vLLM keeps ring buffers of 160 to 250 MB in ``/dev/shm`` and semaphores beside them, both named by Python's
``multiprocessing``. When its processes are killed nobody unlinks them: an engine that is replaced ten times would fill
the memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from app.processes import PROCESSES, stat_fields

FOLDER = Path("/dev/shm")  # noqa: S108 - the system's shared memory, not a temporary file
#: A file younger than this may still be on its way from its maker to those who will map it.
YOUNG_SECONDS = 3.0
_PREFIXES = ("psm_", "sem.mp-")
_POLL_SECONDS = 0.25
#: In place of a device: any file of the folder.
_HERE = -1


def session_began() -> float:
    """Return when the raylet that started this replica began, in seconds since the epoch (a second more or less).

    Later than now where the kernel does not tell when it booted: nothing is then removed.
    """
    lines = (PROCESSES / "stat").read_text().splitlines()
    boot = next((int(line.split()[1]) for line in lines if line.startswith("btime ")), time.time())
    return boot + int(stat_fields(PROCESSES / str(os.getppid()))[19]) / os.sysconf("SC_CLK_TCK")


def remove_orphans(since: float, *, patience: float = 0.0, folder: Path = FOLDER) -> list[str]:
    """Unlink the segments and semaphores that nobody uses any more; return their names.

    A file goes when this user owns it, it was made after ``since`` (seconds since the epoch), it is not young, and no
    process maps it or holds it open: other engines of the node and other programs are left alone. Processes must be
    visible under ``/proc``; containers that share ``/dev/shm`` share their process ids as well, or keep to other users.
    ``patience``: how many seconds to wait for young files to come of age.
    """
    end = time.monotonic() + patience
    removed: list[str] = []
    while True:
        orphans = _orphans(since, folder)
        old = sorted(name for name, age in orphans.items() if age >= YOUNG_SECONDS)
        for name in old:
            (folder / name).unlink(missing_ok=True)
        removed += old
        if len(old) == len(orphans) or time.monotonic() >= end:
            return removed
        time.sleep(_POLL_SECONDS)


def _orphans(since: float, folder: Path) -> dict[str, float]:
    """Return the age in seconds of each file that nobody uses."""
    files = _files(since, folder)
    used = _used(folder) if files else frozenset()
    now = time.time()
    return {
        name: now - max(facts.st_mtime, facts.st_ctime)
        for name, facts in files.items()
        if not used & {(facts.st_dev, facts.st_ino), (_HERE, facts.st_ino)}
    }


def _files(since: float, folder: Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    for path in folder.glob("*"):
        if not path.name.startswith(_PREFIXES):
            continue
        try:
            facts = path.stat(follow_symlinks=False)
        except OSError:
            continue
        # Its size is set when it is made, and what is written through a mapping changes neither time.
        if facts.st_uid == os.geteuid() and min(facts.st_mtime, facts.st_ctime) > since:
            found[path.name] = facts
    return found


def _used(folder: Path) -> frozenset[tuple[int, int]]:
    """Return device and inode of all that processes map or hold open.

    Not the names: a semaphore is mapped under a temporary one that is gone by the time it gets its own.
    """
    used: set[tuple[int, int]] = set()
    for process in PROCESSES.iterdir():
        if process.name.isdigit():
            try:
                used.update(_mapped(process, folder))
                used.update(_opened(process))
            except OSError:  # it is gone, or belongs to others
                continue
    return frozenset(used)


def _mapped(process: Path, folder: Path) -> Iterator[tuple[int, int]]:
    for line in (process / "maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[4] != "0":
            major, minor = (int(part, 16) for part in fields[3].split(":"))
            yield os.makedev(major, minor), int(fields[4])
            if fields[5].startswith(f"{folder}/"):  # where the device of a mapping is another than the file's
                yield _HERE, int(fields[4])


def _opened(process: Path) -> Iterator[tuple[int, int]]:
    for number in (process / "fd").iterdir():
        try:
            # Nothing else is touched: a file on a mount that hangs would hang this as well.
            if Path(os.readlink(number)).name.startswith(_PREFIXES):
                facts = number.stat()
                yield facts.st_dev, facts.st_ino
        except OSError:
            continue
