"""Who is let in: bounded queues at the gateway and before each stage of its process, and a bound per model."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

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
            self._metrics.add("baton_sheds_total", stage=self._stage)
            raise overloaded(self._stage)
        start = time.monotonic()
        self._note_queued(1)
        try:
            await self._free.acquire()
        finally:
            self._note_queued(-1)
        self._metrics.add("baton_queue_milliseconds", (time.monotonic() - start) * 1000, stage=self._stage)
        self._note_ongoing(1)

    def release(self) -> None:
        """Give the slot back."""
        self._free.release()
        self._note_ongoing(-1)

    def _note_queued(self, change: int) -> None:
        self._queued += change
        self._metrics.set("baton_queued", self._queued, stage=self._stage)

    def _note_ongoing(self, change: int) -> None:
        self._ongoing += change
        self._metrics.set("baton_ongoing", self._ongoing, stage=self._stage)


class Capacity:
    """Counts the jobs in flight per model and refuses those that the model's engine would refuse in the end.

    Refused at the engine, a job has paid for its retrieval already: on two cores 112 refusals then took 14 s, and take
    2 s here. ``limit(model)`` is read anew for each job; ``None`` lets any number in.
    """

    def __init__(self, limit: Callable[[str], int | None], metrics: Metrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self._in_flight: Counter[str] = Counter()

    def share(self, model: str) -> float | None:
        """Return the share of a model's capacity that is taken; ``None`` where it has no limit."""
        limit = self._limit(model)
        return None if limit is None else self._in_flight[model] / limit

    @contextlib.contextmanager
    def taken(self, model: str) -> Iterator[None]:
        """Hold a place of ``model``. Raises :class:`Overloaded` when none is free."""
        limit = self._limit(model)
        if limit is not None and self._in_flight[model] >= limit:
            self._metrics.add("baton_sheds_total", stage="generator")
            raise overloaded("generator")
        self._in_flight[model] += 1
        try:
            yield
        finally:
            self._in_flight[model] -= 1


def overloaded(stage: str, retry_after_seconds: int = _RETRY_AFTER_SECONDS) -> Overloaded:
    """Return the error of a full queue."""
    return Overloaded(
        f"The {stage} is at its limit and its queue is full; try again shortly.", stage, None, retry_after_seconds
    )
