"""What is done of a batch, kept on disk so that a run that was killed goes on where it stood.

A folder with ``manifest.json`` (which input this is) and ``done.jsonl``: one line per finished row, appended with one
write and never changed. A kill can tear the last line only, which is cut off at the next start; its row is asked again.
Where a row stands twice (it failed and was tried again) the later line counts. The lock is the file system's
(``flock``): it ends with its process, so that nobody waits for a dead one, and holds between nodes where the storage
carries it (NFS 4, CephFS).
"""

from __future__ import annotations

import errno
import fcntl
import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from app.errors import BatonError, Conflict, StageUnavailable

_FORMAT = 1
_NOT_DONE = -1
#: What `flock` says where somebody else holds the lock.
_HELD = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES})


class Busy(Conflict):
    """Another process works on this batch."""


def without_locks(folder: Path, error: OSError) -> StageUnavailable:
    """Return what to say where ``flock`` fails for another reason than a lock that somebody holds."""
    return StageUnavailable(
        f"{folder} cannot be locked ({error.strerror}): keep it on storage with flock, such as a local "
        "disk, NFS 4 or CephFS.",
        "batch",
    )


@dataclass(frozen=True, slots=True)
class Record:
    """How a row ended. ``body`` is the reply; ``error`` the fields of our error where it failed."""

    row: int
    custom_id: str
    status: int
    request_id: str
    body: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether the row has no answer."""
        return self.error is not None


def failure(row: int, custom_id: str, error: BatonError, request_id: str = "") -> Record:
    """Return the record of a row that got no answer."""
    return Record(row, custom_id, error.status, request_id, None, error.body()["error"])


class Ledger:
    """The progress of one batch, of one process at a time: ``with``, or ``lock``, ``read`` and ``close``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places = array("q")  # row → where its record begins, or -1
        self._failed: set[int] = set()
        self._done = 0
        self._lock: BinaryIO | None = None
        self._log: BinaryIO | None = None
        self._end = 0

    def __enter__(self) -> Ledger:
        """Take the lock and read what is done. Raises Busy, and StageUnavailable where the storage has no locks."""
        self.lock()
        self.read()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def lock(self) -> None:
        """Take the lock. Raises Busy, and StageUnavailable where the storage has no locks."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            if error.errno in _HELD:
                raise Busy(f"Another process works on {self._folder}: wait for it, or stop it.", "batch") from None
            raise without_locks(self._folder, error) from None

    def close(self) -> None:
        """Leave everything on disk and give the lock back, which goes whatever the disk says; once more does nothing.

        Raises OSError.
        """
        try:
            if self._log is not None and not self._log.closed:
                with self._log:
                    self.sync()
        finally:
            if self._lock is not None:
                self._lock.close()

    def claim(self, facts: Mapping[str, Any]) -> None:
        """Note which input this is, or check that it is still the same. Raises Conflict for another one."""
        path = self._folder / "manifest.json"
        wanted = {"format": _FORMAT, **facts}
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.write_bytes(orjson.dumps(wanted))
            fresh.replace(path)
            return
        found = orjson.loads(path.read_bytes())
        changed = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        if changed:
            raise Conflict(
                f"{self._folder} holds the progress of another batch (its {changed[0]} differs): bring the old "
                "input back to go on, or name another output, or delete the folder to begin anew.",
                "batch",
            )

    def has(self, row: int, *, retry_failed: bool = False) -> bool:
        """Tell whether a row is done; with ``retry_failed``, a failed one is not."""
        known = row < len(self._places) and self._places[row] != _NOT_DONE
        return known and not (retry_failed and row in self._failed)

    @property
    def done(self) -> int:
        """Rows that are done, the failed ones among them."""
        return self._done

    @property
    def failed(self) -> int:
        """Rows that failed."""
        return len(self._failed)

    def add(self, record: Record) -> None:
        """Write a row's record: no kill of the process loses it, and after :meth:`sync` no loss of the machine."""
        assert self._log is not None
        line = orjson.dumps(asdict(record)) + b"\n"
        self._log.write(line)
        self._log.flush()
        self._note(record.row, self._end, record.failed)
        self._end += len(line)

    def sync(self) -> None:
        """Bring what was written onto the disk. May run beside :meth:`add`, in another thread: it takes its time."""
        assert self._log is not None
        os.fsync(self._log.fileno())

    def records(self, wanted: Callable[[bool], bool] = lambda failed: True) -> Iterator[Record]:
        """Yield the records in the rows' order; ``wanted`` chooses by whether a row failed."""
        with (self._folder / "done.jsonl").open("rb") as log:
            for row, place in enumerate(self._places):
                if place != _NOT_DONE and wanted(row in self._failed):
                    log.seek(place)
                    yield Record(**orjson.loads(log.readline()))

    def read(self) -> None:
        """Read what is done, which takes the longer the more that is."""
        self._log = (self._folder / "done.jsonl").open("a+b")
        self._log.seek(0)
        for line in self._log:
            found = _whole(line)
            if found is None:  # torn by a kill, or by a full disk that took a part of it
                self._log.truncate(self._end)
                break
            self._note(found["row"], self._end, found["error"] is not None)
            self._end += len(line)

    def _note(self, row: int, place: int, failed: bool) -> None:
        while len(self._places) <= row:
            self._places.append(_NOT_DONE)
        self._done += self._places[row] == _NOT_DONE
        self._places[row] = place
        (self._failed.add if failed else self._failed.discard)(row)


def _whole(line: bytes) -> dict[str, Any] | None:
    """Return what a line holds; None where it is not whole."""
    try:
        found: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if line.endswith(b"\n") else None
