"""Baton's stages of the hand-off bench: plain Python, for a Serve replica, a raw actor or the gateway's process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.arena import Arena, ArenaReader, Placed
from app.deployments.runner import settle
from app.messages import Retrieved
from tests.bench.handoff_tensor import clocked, from_table, ground, private_table, touch

_LEASE_SECONDS = 60.0
#: 16 in flight, and some to spare; up to 64 MiB each. Memory is taken as used.
SLOTS, SLOT_BYTES = 20, 65 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    """What a stage is asked: ``work`` is ``touch`` (read every page), ``ground`` (MaxSim) or ``inspect``."""

    mib: int
    work: str = "touch"


class Pauses:
    """Logs every pause that Python's garbage collector makes in this process."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._start = 0.0
        gc.callbacks.append(self._log)

    def _log(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self._seconds.append(time.perf_counter() - self._start)

    def take(self) -> list[float]:
        """Return the pauses since the last call."""
        found, self._seconds = self._seconds, []
        return found


class Stage:
    """A stage of either kind; ``name`` is what a runner asks for."""

    name = "bench"

    def __init__(self) -> None:
        settle()  # as a replica of the product does when it is ready
        self._pauses = Pauses()

    def account(self) -> dict[str, Any]:
        """Return this process's id and its collector's pauses since the last call."""
        return {"pid": os.getpid(), "pauses": self._pauses.take()}

    def empty(self, before: Any = None) -> dict[str, Any]:
        """Do nothing, for a call with nothing in it."""
        return {}


class Producer(Stage):
    """The first stage: holds the tensor in private memory."""

    def __init__(self) -> None:
        super().__init__()
        self._arena: Arena | None = None

    def run(self, ask: Ask, payload: None = None) -> Retrieved:
        """Return the payload as it is; the arena, Ray, or nobody has to move it."""
        return Retrieved(private_table(ask.mib), top_k=4)

    def place(self, ask: Ask) -> Placed:
        """Copy the payload into an arena of this stage's own; returns the descriptor."""
        self._arena = self._arena or Arena(SLOTS, SLOT_BYTES)
        placed = self._arena.place(private_table(ask.mib), _LEASE_SECONDS)
        if placed is None:
            raise MemoryError("no slot of the arena is free")
        return placed

    def close(self) -> None:
        """Remove the arena's file."""
        if self._arena is not None:
            self._arena.close()
            self._arena = None


class Consumer(Stage):
    """Any later stage."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = ArenaReader()

    def run(self, ask: Ask, payload: Retrieved) -> dict[str, Any]:
        """Read the payload."""
        return _read(ask, payload.passages)

    def open(self, ask: Ask, placed: Placed) -> dict[str, Any]:
        """Open the payload in the arena, and read it."""
        table, seconds = clocked(self._reader.open, placed)
        reply = _read(ask, table)
        self._reader.check(placed)
        return reply | {"map": seconds}

    def follow(self, ask: Ask, made: Placed | Retrieved, before: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        """Do either in a compiled graph, where a stage hears only of the stage before it."""
        if isinstance(made, Retrieved):
            return [*(before or ()), self.run(ask, made)]
        return [*(before or ()), self.open(ask, made) | {"placed": made}]


def _read(ask: Ask, table: pa.Table) -> dict[str, Any]:
    array = from_table(table)
    reply: dict[str, Any] = {"sum": ground(array) if ask.work == "ground" else touch(array)}
    if ask.work == "inspect":
        reply["mapped"] = lies_in_shared_memory(array.ctypes.data) and not array.flags.writeable
    return reply


def lies_in_shared_memory(address: int) -> bool:
    """Tell whether the address belongs to a mapping that is shared with other processes."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split(maxsplit=2)[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end:
            return rights.endswith("s")
    return False
