"""Hands the retriever's result on through this node's shared memory (``app/arena.py``). One instance per process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from app.arena import Arena, ArenaReader, Placed
from app.config.pipeline import HandoffShape
from app.messages import Retrieved

#: How long a payload waits for the one who asked for it; he keeps it until he releases it, or is gone for that long.
_ARRIVAL_SECONDS, _KEPT_SECONDS = 30.0, 900.0
#: From this size on the copy into the arena leaves the event loop: 1 MiB takes 0.2 ms.
_OFF_LOOP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PlacedRetrieved:
    """A :class:`app.messages.Retrieved` whose passages lie in shared memory: a few bytes, sent by value."""

    placed: Placed
    top_k: int
    question_truncated: bool
    milliseconds: Mapping[str, float]
    made: float


class Payloads:
    """Places payloads that were made in this process and opens those of others on this node."""

    def __init__(self, shape: HandoffShape) -> None:
        self._shape = shape
        self._arena: Arena | None = None
        self._lock = Lock()
        self._reader = ArenaReader()

    async def place(self, retrieved: Retrieved) -> PlacedRetrieved | None:
        """Copy the passages into shared memory. None = there is no room: send them through the object store."""
        if retrieved.passages.nbytes < _OFF_LOOP_BYTES:
            return self._place(retrieved)
        return await asyncio.to_thread(self._place, retrieved)

    def _place(self, retrieved: Retrieved) -> PlacedRetrieved | None:
        placed = self._own_arena().place(retrieved.passages, _ARRIVAL_SECONDS)
        if placed is None:
            return None
        return PlacedRetrieved(
            placed, retrieved.top_k, retrieved.question_truncated, retrieved.milliseconds, retrieved.made
        )

    def _own_arena(self) -> Arena:
        with self._lock:  # made when first needed: most processes only read
            if self._arena is None:
                self._arena = Arena(self._shape.slots, self._shape.slot_bytes)
            return self._arena

    def open(self, payload: PlacedRetrieved) -> Retrieved:
        """Return the payload with its passages where they lie. Raises :class:`app.errors.PayloadElsewhere`."""
        return Retrieved(
            self._reader.open(payload.placed),
            payload.top_k,
            payload.question_truncated,
            payload.milliseconds,
            payload.made,
        )

    def keep(self, payload: PlacedRetrieved) -> None:
        """Hold the payload until it is released. Raises :class:`app.errors.PayloadElsewhere`."""
        self._reader.keep(payload.placed, _KEPT_SECONDS)

    def check(self, payload: PlacedRetrieved) -> None:
        """Raise :class:`app.errors.PayloadElsewhere` when the memory was given to another while it was read."""
        self._reader.check(payload.placed)

    def release(self, payload: PlacedRetrieved) -> None:
        """Give the memory back; nobody may read it from now on."""
        self._reader.release(payload.placed)

    def close(self) -> None:
        """Remove this process's shared memory."""
        if self._arena is not None:
            self._arena.close()
            self._arena = None
