"""A shared-memory arena: a payload is written once into this node's memory and mapped, not copied, by its consumers.

One process (the producer, :class:`Arena`) owns a file under ``/dev/shm`` that is cut into slots. It writes an Arrow
table into a free slot and sends a :class:`Placed`, a few bytes that go by value; every consumer on the node
(:class:`ArenaReader`) maps the file once and reads the table where it lies. Ray's object store does the same with two
messages to its server and fresh pages per payload; the figures are in ``tests/bench/results/handoff.json``.

A slot's life: *placed* under a lease, *released* by the one who asked for it when all its consumers have answered, or
free again when the lease ends because that one died. Each use has a generation, so a late reader notices. Memory is
taken when a slot is first used and given back when it lies idle. A file whose owner died is removed by the next owner:
the owner holds a lock on it that the system drops with the process.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pyarrow as pa

from app.errors import PayloadElsewhere

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's shared memory, not a temporary file
PREFIX = "baton-arena-"
#: The file's first word: bytes of its header. Then, per slot: generation in use, generation last released, end of the
#: lease (CLOCK_MONOTONIC, nanoseconds).
_RECORD = struct.Struct("@QQq")
_WORD = struct.Struct("@Q")
_INSTANT = struct.Struct("@q")
#: An Arrow stream has a schema and offsets beside its buffers.
_SLACK_BYTES = 64 * 1024
_IDLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a payload lies: ``size`` bytes at ``offset`` of ``file``, as an Arrow stream."""

    file: str
    slot: int
    generation: int
    offset: int
    size: int


class Arena:
    """The producer's side: ``slots`` slots of at most ``slot_bytes`` each. Thread-safe."""

    def __init__(self, slots: int, slot_bytes: int, folder: Path = SHARED_MEMORY) -> None:
        remove_orphans(folder)
        self._slot_bytes = _whole_pages(slot_bytes)
        self._header_bytes = _whole_pages(_record(slots))
        size = self._header_bytes + slots * self._slot_bytes
        self._path, self._fd = _create(folder, size)
        self._memory = mmap.mmap(self._fd, size)
        _WORD.pack_into(self._memory, 0, self._header_bytes)
        self._taken_bytes = [0] * slots
        self._last_used = [0.0] * slots
        self._next_trim = time.monotonic() + _IDLE_SECONDS
        self._lock = Lock()

    def place(self, table: pa.Table, lease_seconds: float) -> Placed | None:
        """Write ``table`` into a free slot, one copy. None = no slot is free, or it is too big for one."""
        needed = table.nbytes + _SLACK_BYTES
        if needed > self._slot_bytes:
            return None
        found = self._take(needed, lease_seconds)
        if found is None:
            return None
        slot, generation = found
        offset = self._offset(slot)
        room = pa.py_buffer(memoryview(self._memory)[offset : offset + needed])
        with pa.FixedSizeBufferWriter(room) as sink:
            try:
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
            except OSError:  # more small batches than the slack has room for
                self._release(slot, generation)
                return None
            size = sink.tell()
        return Placed(str(self._path), slot, generation, offset, size)

    def close(self) -> None:
        """Remove the file. Payloads that are mapped stay readable."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)

    def _offset(self, slot: int) -> int:
        return self._header_bytes + slot * self._slot_bytes

    def _take(self, needed: int, lease_seconds: float) -> tuple[int, int] | None:
        with self._lock:
            self._trim()
            now = time.monotonic_ns()
            for slot in range(len(self._taken_bytes)):  # the first free one: used lately, its pages are there
                generation, released, lease = _RECORD.unpack_from(self._memory, _record(slot))
                if released != generation and lease > now:
                    continue
                if not self._have_pages(slot, needed):
                    return None
                lease = now + int(lease_seconds * 1e9)
                _RECORD.pack_into(self._memory, _record(slot), generation + 1, released, lease)
                self._last_used[slot] = time.monotonic()
                return slot, generation + 1
        return None

    def _have_pages(self, slot: int, needed: int) -> bool:
        """Take memory for the slot now: where there is none, writing into the file would end the process."""
        if self._taken_bytes[slot] < needed:
            try:
                os.posix_fallocate(self._fd, self._offset(slot), min(_whole_pages(needed), self._slot_bytes))
            except OSError:
                return False
            self._taken_bytes[slot] = needed
        return True

    def _release(self, slot: int, generation: int) -> None:
        _WORD.pack_into(self._memory, _record(slot) + _WORD.size, generation)

    def _trim(self) -> None:
        now = time.monotonic()
        if now < self._next_trim:
            return
        self._next_trim = now + _IDLE_SECONDS
        for slot, taken in enumerate(self._taken_bytes):
            generation, released, lease = _RECORD.unpack_from(self._memory, _record(slot))
            free = released == generation or lease <= time.monotonic_ns()
            if taken and free and self._last_used[slot] < now - _IDLE_SECONDS:
                self._memory.madvise(mmap.MADV_REMOVE, self._offset(slot), self._slot_bytes)
                self._taken_bytes[slot] = 0


class ArenaReader:
    """A consumer's side: maps each arena of this node once. Thread-safe."""

    def __init__(self) -> None:
        self._mapped: dict[str, _Mapping] = {}
        self._lock = Lock()

    def open(self, placed: Placed) -> pa.Table:
        """Return the table where it lies, read-only. Raises :class:`PayloadElsewhere`."""
        mapping = self._mapping(placed.file)
        self._check(mapping, placed)
        data = pa.py_buffer(memoryview(mapping.data)[placed.offset : placed.offset + placed.size])
        return pa.ipc.open_stream(data).read_all()

    def keep(self, placed: Placed, lease_seconds: float) -> None:
        """Begin a new lease, from now on. Raises :class:`PayloadElsewhere`."""
        mapping = self._mapping(placed.file)
        self._check(mapping, placed)
        end = time.monotonic_ns() + int(lease_seconds * 1e9)
        _INSTANT.pack_into(mapping.header, _record(placed.slot) + 2 * _WORD.size, end)

    def check(self, placed: Placed) -> None:
        """Raise :class:`PayloadElsewhere` when the slot was given to another payload while this one was read."""
        self._check(self._mapping(placed.file), placed)

    def release(self, placed: Placed) -> None:
        """Give the slot back; nobody may read the payload from now on."""
        try:
            header = self._mapping(placed.file).header
        except PayloadElsewhere:
            return
        _WORD.pack_into(header, _record(placed.slot) + _WORD.size, placed.generation)

    def _check(self, mapping: _Mapping, placed: Placed) -> None:
        generation, released, _ = _RECORD.unpack_from(mapping.header, _record(placed.slot))
        if generation != placed.generation or released == generation:
            raise PayloadElsewhere("The retrieved passages were dropped before they were read; try again.", "retriever")

    def _mapping(self, file: str) -> _Mapping:
        with self._lock:
            if file not in self._mapped:
                for gone in [known for known in self._mapped if not Path(known).exists()]:
                    del self._mapped[gone]
                self._mapped[file] = _map(file)
            return self._mapped[file]


@dataclass(frozen=True, slots=True)
class _Mapping:
    data: mmap.mmap
    header: mmap.mmap


def _map(file: str) -> _Mapping:
    try:
        fd = os.open(file, os.O_RDWR)
    except OSError:
        raise PayloadElsewhere("The retrieved passages lie on another node.", "retriever") from None
    try:
        # Records may be written by whoever releases a slot, payloads by nobody but their producer.
        data = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        (header_bytes,) = _WORD.unpack_from(data, 0)
        return _Mapping(data, mmap.mmap(fd, header_bytes))
    finally:
        os.close(fd)


def _create(folder: Path, size: int) -> tuple[Path, int]:
    """Make the file under a name that nobody looks for, and give it its own once it is locked."""
    name = f"{os.getpid()}-{secrets.token_hex(8)}"
    hidden = folder / f".{name}"
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.truncate(fd, size)
    return hidden.rename(folder / f"{PREFIX}{name}"), fd


def _record(slot: int) -> int:
    """Return where a slot's record lies."""
    return _WORD.size + slot * _RECORD.size


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def remove_orphans(folder: Path = SHARED_MEMORY) -> list[str]:
    """Remove the files of owners that are gone; return their names."""
    removed = []
    for path in sorted(folder.glob(f"{PREFIX}*")):
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            removed.append(path.name)
        except OSError:
            continue
        finally:
            os.close(fd)
    return removed
