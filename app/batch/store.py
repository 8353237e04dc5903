"""Files and batches as OpenAI's endpoints show them, kept in a folder that all gateways share.

``<folder>/<owner>/files/<id>/`` holds ``meta.json`` and ``content``; ``<folder>/<owner>/batches/<id>/`` holds
``batch.json``, a mark when somebody cancels, and the ledger of a batch that is at work. An owner is an API key's id, so
that nobody reaches what another key left: an id is only looked up among its owner's. Ids begin with the time, so their
order is that of their making. After its making only who holds a batch's lock writes ``batch.json``. A file without
``meta.json`` and a batch without ``batch.json`` are not there yet, or no longer (app/batch/tidying.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from app.batch.ledger import Busy, Ledger, without_locks
from app.config.batches import BatchesConfig
from app.errors import BatonError, ConfigError, Conflict, InvalidRequest, NotFound, bounded

#: States of a batch that is over.
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
CANCEL_MARK = "cancel"
FILE_ID = re.compile(r"file-[0-9a-f]{32}")
BATCH_ID = re.compile(r"batch_[0-9a-f]{32}")
_OWNER = re.compile(r"nobody|key-.+")
_NOBODY = "nobody"
_CHUNK = 1 << 20


def check_folder(config: BatchesConfig, make: bool) -> None:
    """Try the folder as a batch uses it: list it, write a file there, lock the file.

    ``make`` makes it where it is missing, as the first upload would; without, the nearest folder above is tried, and
    nothing stays behind. Raises ConfigError with a sentence that says what to change.
    """
    if not config.folder:
        return
    folder = Path(config.folder)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            folder.stat()  # tells what `exists` keeps to itself: a file above, a name that is none
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        os.listdir(existing)
        with tempfile.TemporaryFile(dir=existing) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"settings.batches.folder names {bounded(config.folder, 300)}, where no files can be kept ({reason}): "
            "name a folder that can be written and locked, mount its volume, or mend its permissions."
        ) from None


def owner_of(key_id: str | None) -> str:
    """Return the name of the folder of a key's files; that of all where there are no keys."""
    return _NOBODY if key_id is None else f"key-{key_id}"


def key_of(owner: str) -> str | None:
    """Return the id of the key that an owner is; None where there were no keys."""
    return None if owner == _NOBODY else owner.removeprefix("key-")


def owners(config: BatchesConfig) -> list[str]:
    """Return all owners that left anything."""
    return sorted(names(Path(config.folder), _OWNER))


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait until no other process removes files of an owner, or makes a batch of one. Raises StageUnavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise without_locks(folder, error) from None
        yield


def output_ids(batch_id: str) -> dict[str, str]:
    """Return the ids of a batch's files of answers (``output``) and of errors (``error``), made or not."""
    # The last digit of a batch's id is chance: of three ids that differ in it alone, two are the outputs'.
    digits = batch_id.removeprefix("batch_")
    last = int(digits[-1], 16)
    return {kind: f"file-{digits[:-1]}{(last + step) % 16:x}" for kind, step in (("output", 1), ("error", 2))}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Put a file in place as a whole, on the disk before it stands in the old one's stead."""
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with fresh.open("wb") as sink:
            sink.write(orjson.dumps(value))
            sink.flush()
            os.fsync(sink.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a file's object; None where there is no such file."""
    try:
        found: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _new_id(prefix: str) -> str:
    return f"{prefix}{time.time_ns():016x}{secrets.token_hex(8)}"


class Files:
    """Files of one owner."""

    def __init__(self, config: BatchesConfig, owner: str) -> None:
        self._config = config
        self._folder = Path(config.folder) / owner / "files"

    def save(self, source: BinaryIO, filename: str, purpose: str, expires_after: int | None = None) -> dict[str, Any]:
        """Keep an upload. Raises InvalidRequest for one too large, and Conflict where the owner has too many files."""
        if len(self._ids()) >= self._config.max_files:
            raise Conflict(
                f"This key has {self._config.max_files} files, the most that it may keep: delete some.", "batch"
            )

        def write(sink: BinaryIO) -> None:
            size = 0
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > self._config.max_file_bytes:
                    told = f"The file is over the limit of {self._config.max_file_bytes} bytes."
                    raise InvalidRequest(told, "batch", "file")
                sink.write(chunk)

        return self.put(_new_id("file-"), write, filename, purpose, expires_after)

    def put(
        self,
        file_id: str,
        write: Callable[[BinaryIO], object],
        filename: str,
        purpose: str,
        expires_after: int | None = None,
    ) -> dict[str, Any]:
        """Keep what ``write`` writes under an id, in place of what was there under it; the seconds count from now."""
        folder = self._folder / file_id
        folder.mkdir(parents=True, exist_ok=True)
        try:
            fresh = folder / ".content"
            with fresh.open("wb") as sink:
                write(sink)
                sink.flush()
                os.fsync(sink.fileno())
                size = sink.tell()
            fresh.replace(folder / "content")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        now = int(time.time())
        meta = {
            "id": file_id,
            "object": "file",
            "bytes": size,
            "created_at": now,
            **({} if expires_after is None else {"expires_at": now + expires_after}),
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
        }
        write_json(folder / "meta.json", meta)
        return meta

    def get(self, file_id: str, param: str = "file_id") -> dict[str, Any]:
        """Return what is known of a file. Raises NotFound, which names ``param`` as the field that holds the id."""
        meta = read_json(self._folder / file_id / "meta.json") if FILE_ID.fullmatch(file_id) else None
        if meta is None:
            raise NotFound(f"There is no file {bounded(file_id)}: GET /v1/files lists those there are.", "batch", param)
        return meta

    def content(self, file_id: str) -> Path:
        """Return where a file's bytes lie. Raises NotFound."""
        return self._folder / str(self.get(file_id)["id"]) / "content"

    def delete(self, file_id: str) -> None:
        """Remove a file. Raises NotFound, and Conflict where a batch that is not over reads it."""
        self.get(file_id)
        with turn(self._folder.parent):
            if Batches(self._config, self._folder.parent.name).uses(file_id):
                told = "A batch that is not over reads this file: cancel the batch first."
                raise Conflict(told, "batch", "file_id")
            remove(self._folder / file_id, "meta.json")

    def list_all(self) -> list[dict[str, Any]]:
        """Return all files, the newest first."""
        found = (read_json(self._folder / name / "meta.json") for name in self._ids())
        return [meta for meta in found if meta is not None]

    def _ids(self) -> list[str]:
        return sorted(names(self._folder, FILE_ID), reverse=True)


class Batches:
    """Batches of one owner."""

    def __init__(self, config: BatchesConfig, owner: str) -> None:
        self._config = config
        self._owner = owner
        self._folder = Path(config.folder) / owner / "batches"

    def create(self, asked: Mapping[str, Any], hours: int) -> dict[str, Any]:
        """Keep a new batch, which a gateway takes up.

        Raises Conflict where the owner has too many at once, and NotFound where its file has gone meanwhile.
        """
        with turn(self._folder.parent):
            Files(self._config, self._owner).get(asked["input_file_id"], "input_file_id")
            return self._create(asked, hours)

    def _create(self, asked: Mapping[str, Any], hours: int) -> dict[str, Any]:
        if sum(state["status"] not in ENDED for state in self.list_all()) >= self._config.max_open:
            raise Conflict(f"This key has {self._config.max_open} batches at work, its limit: wait for one.", "batch")
        now = int(time.time())
        state = {
            "id": _new_id("batch_"),
            "object": "batch",
            **asked,
            "status": "validating",
            "created_at": now,
            "expires_at": now + hours * 3600,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }
        folder = self._folder / state["id"]
        folder.mkdir(parents=True)
        write_json(folder / "batch.json", state)
        return state

    def folder(self, batch_id: str) -> Path:
        """Return where a batch lies. Raises NotFound."""
        self.get(batch_id)
        return self._folder / batch_id

    def get(self, batch_id: str) -> dict[str, Any]:
        """Return a batch's state. Raises NotFound."""
        folder = self._folder / batch_id
        state = read_json(folder / "batch.json") if BATCH_ID.fullmatch(batch_id) else None
        if state is None:
            raise NotFound(
                f"There is no batch {bounded(batch_id)}: GET /v1/batches lists those there are.", "batch", "batch_id"
            )
        mark = None if state["status"] in ENDED else read_json(folder / CANCEL_MARK)
        return state if mark is None else {**state, "status": "cancelling", **mark}

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """Ask whoever works on a batch to stop. Raises NotFound, and Conflict for one that is over."""
        state = self.get(batch_id)
        if state["status"] in ENDED:
            raise Conflict(f"The batch is {state['status']} already: there is nothing to cancel.", "batch")
        if state["status"] != "cancelling" and not self._end_unbegun(self._folder / batch_id):
            write_json(self._folder / batch_id / CANCEL_MARK, {"cancelling_at": int(time.time())})
        return self.get(batch_id)

    def _end_unbegun(self, folder: Path) -> bool:
        """Cancel a batch that nobody has begun with, which may wait for hours; tells whether it was one."""
        ledger = Ledger(folder / "progress")
        try:
            ledger.lock()
        except Busy:
            return False
        try:
            state = read_json(folder / "batch.json")
            if state is None or state["status"] != "validating":
                return False
            now = int(time.time())
            write_json(
                folder / "batch.json", {**state, "status": "cancelled", "cancelling_at": now, "cancelled_at": now}
            )
            shutil.rmtree(folder / "progress", ignore_errors=True)
            return True
        finally:
            ledger.close()

    def list_all(self) -> list[dict[str, Any]]:
        """Return all batches, the newest first; none that is only just being made."""
        found = []
        for name in sorted(names(self._folder, BATCH_ID), reverse=True):
            with contextlib.suppress(NotFound):
                found.append(self.get(name))
        return found

    def uses(self, file_id: str) -> bool:
        """Tell whether a batch that is not over reads a file."""
        return any(state["input_file_id"] == file_id and state["status"] not in ENDED for state in self.list_all())


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that is not over. ``asks_nothing``: it was cancelled or its time is over, and is only to be ended."""

    owner: str
    name: str
    asks_nothing: bool


def is_free(config: BatchesConfig, batch: OpenBatch) -> bool:
    """Tell whether no gateway works on a batch at this moment."""
    ledger = Ledger(Path(config.folder) / batch.owner / "batches" / batch.name / "progress")
    try:
        ledger.lock()
    except (BatonError, OSError):
        return False
    ledger.close()
    return True


def open_batches(config: BatchesConfig, ended: set[str]) -> list[OpenBatch]:
    """Return every batch that is not over, the oldest first; ids known to be over are in ``ended``."""
    found = []
    for owner in owners(config):
        folder = Path(config.folder) / owner / "batches"
        for name in set(names(folder, BATCH_ID)) - ended:
            state = read_json(folder / name / "batch.json")
            if state is not None and state["status"] in ENDED:
                ended.add(name)
            elif state is not None:
                over = (folder / name / CANCEL_MARK).exists() or time.time() > state["expires_at"]
                found.append(OpenBatch(owner, name, over))
    return sorted(found, key=lambda batch: batch.name)


def check_page(items: list[dict[str, Any]], after: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the items after the one with the id ``after``, and whether there are more. Raises InvalidRequest."""
    start = 0
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InvalidRequest(f"after names {bounded(after)}, which is not in the list.", "batch", "after")
        start = places[0] + 1
    return items[start : start + limit], len(items) > start + limit


def remove(folder: Path, whole: str) -> None:
    """Remove a file's or batch's folder; ``whole`` names what makes it one, which goes first: no half is ever seen."""
    (folder / whole).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):  # somebody else removes it as well
        shutil.rmtree(folder)


def names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the names in a folder that a pattern fits; none where there is no folder."""
    try:
        return [name for name in os.listdir(folder) if pattern.fullmatch(name)]
    except FileNotFoundError:
        return []
