"""Who is let in: a bounded queue before each stage of the gateway's process. Before engines: ``app/line.py``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from app.errors import Overloaded
from app.metrics import Metrics

_RETRY_AFTER_SECONDS = 1


class Admission:
    """Lets ``max_ongoing`` calls in and ``max_queued`` more wait (-1 = any number); refuses the rest at once."""

    def __init__(self, stage: str, max_ongoing: int, max_queued: int, metrics: Metrics) -> None:
        self._stage = stage
        self._free = asyncio.Semaphore(max_ongoing)
        self._max_queued = max_queued
        self._queued = 0
        self._ongoing = 0
        self._metrics = metrics

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one slot. Raises :class:`Overloaded` when the queue is full."""
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    async def acquire(self) -> None:
        """Take one slot, waiting in the bounded queue. Raises :class:`Overloaded` when the queue is full."""
        if self._free.locked() and 0 <= self._max_queued <= self._queued:
            self._metrics.add("baton_sheds_total", stage=self._stage, priority="")
            raise overloaded(self._stage)
        start = time.monotonic()
        self._note_queued(1)
        try:
            await self._free.acquire()
        finally:
            self._note_queued(-1)
        self._metrics.add("baton_queue_milliseconds", (time.monotonic() - start) * 1000, stage=self._stage, priority="")
        self._note_ongoing(1)

    def release(self) -> None:
        """Give the slot back."""
        self._free.release()
        self._note_ongoing(-1)

    def _note_queued(self, change: int) -> None:
        self._queued += change
        self._metrics.set("baton_queued", self._queued, stage=self._stage, priority="")

    def _note_ongoing(self, change: int) -> None:
        self._ongoing += change
        self._metrics.set("baton_ongoing", self._ongoing, stage=self._stage, priority="")


def overloaded(stage: str, retry_after_seconds: int = _RETRY_AFTER_SECONDS) -> Overloaded:
    """Return the error of a full queue."""
    return Overloaded(
        f"The {stage} is at its limit and its queue is full; try again shortly.", stage, None, retry_after_seconds
    )
