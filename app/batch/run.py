"""Runs the rows of a batch that are not done yet, so many at once, and notes how each ended."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from app.batch.ledger import Ledger, Record, failure
from app.batch.rows import Row
from app.errors import BatonError, RateLimitExceeded, StageUnavailable
from app.metrics import Metrics

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 15.0
#: The longest wait that a refusal may ask for: limits change while the gateway serves.
_LONGEST_WAIT_SECONDS = 60.0
#: How often a run whose rows all wait for their key's limits looks whether somebody else could go on.
_LOOK_ROUND_SECONDS = 2.0
#: How often what is done is brought onto the disk, off the event loop: a gateway's answers others on it.
_SYNC_SECONDS = 1.0
#: How many rows are read at once. Each may be as long as `max_row_bytes`.
_READ_ROWS = 16
#: Errors of the gateway or the engine that a row may meet before it counts as failed.
_ATTEMPTS = 3


class TryAgain(Exception):
    """The row was not answered, for a reason that will pass. ``error`` is what to tell if it does not.

    ``cost`` is the share of an attempt that the row used up: 0 where a queue was full or nobody was there.
    """

    def __init__(self, error: BatonError, *, cost: float) -> None:
        super().__init__(error.message)
        self.error = error
        self.cost = cost


class Asker(Protocol):
    """Somebody who answers rows."""

    async def ask(self, row: Row) -> Record:
        """Return how the row ended. Raises TryAgain, and a BatonError that stops the whole run."""
        ...


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a batch is run.

    ``patience_seconds``: how long no row may end, while the gateway is away or full, before the run gives up.
    ``retry_failed``: ask rows again that failed in an earlier run.
    """

    concurrency: int = 16
    patience_seconds: float = 600.0
    retry_failed: bool = False


class RowMeter:
    """Counts rows at work and rows that ended, for all batches of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._asking = 0

    def asking(self, change: int) -> None:
        """Count rows that begin (1) or end (-1) to be asked."""
        self._asking += change
        self._metrics.set("baton_batch_rows_at_work", self._asking)

    def ended(self, record: Record) -> None:
        """Count a row that ended."""
        self._metrics.add("baton_batch_rows_total", outcome="failed" if record.failed else "answered")


class _Pending:
    """Rows that are not done, read in threads: to get past 50,000 done ones takes seconds, and the loop has others."""

    def __init__(self, rows: Generator[Row, None, None]) -> None:
        self._rows = rows
        self._read: deque[Row] = deque()
        self._reading = asyncio.Lock()
        self._thread_reads = threading.Lock()

    async def next_row(self) -> Row | None:
        """Return the next row; None after the last."""
        async with self._reading:
            if not self._read:
                self._read.extend(await asyncio.to_thread(self._next_rows))
            return self._read.popleft() if self._read else None

    def _next_rows(self) -> list[Row]:
        with self._thread_reads:
            return list(islice(self._rows, _READ_ROWS))

    def close(self) -> None:
        """Close the file that the rows come from, once nobody reads in it."""
        with self._thread_reads:
            self._rows.close()


class Stopped(Exception):
    """The run was asked to stop; what is done stays."""


class GaveWay(Exception):
    """All rows wait for the limits of their key, and somebody else's batch can go on meanwhile; what is done stays."""


async def _nobody_waits() -> bool:
    return False


class BatchRun:
    """One run over a batch's rows. ``ended`` is called after each row.

    ``others_wait`` is asked while all rows at work wait for the limits of their key.
    """

    def __init__(
        self,
        ledger: Ledger,
        options: RunOptions,
        meter: RowMeter,
        ended: Callable[[Record], None] = lambda record: None,
        others_wait: Callable[[], Awaitable[bool]] = _nobody_waits,
    ) -> None:
        self._ledger = ledger
        self._options = options
        self._meter = meter
        self._ended = ended
        self._others_wait = others_wait
        self._asking = self._limited = 0
        self._last_end = time.monotonic()

    def note(self, record: Record) -> None:
        """Write down how a row ended."""
        self._ledger.add(record)
        self._last_end = time.monotonic()
        self._meter.ended(record)
        self._ended(record)

    async def run(self, rows: Iterable[Row], asker: Asker, stop: asyncio.Event) -> None:
        """Ask all pending rows. Raises Stopped, GaveWay, and the error that stopped the run: what is done stays."""
        pending = _Pending(row for row in rows if not self._is_done(row))
        self._last_end = time.monotonic()
        workers = [asyncio.create_task(self._work(pending, asker)) for _ in range(self._options.concurrency)]
        stopping, yielding = asyncio.create_task(stop.wait()), asyncio.create_task(self._look_round())
        syncing = asyncio.create_task(self._sync())
        try:
            left = set(workers)
            while left:
                done, _ = await asyncio.wait({*left, stopping, yielding}, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done:
                    raise Stopped
                for worker in done & left:
                    worker.result()
                if yielding in done:
                    yielding.result()
                    raise GaveWay
                left -= done
        finally:
            for task in (*workers, stopping, yielding, syncing):
                task.cancel()
            await asyncio.gather(*workers, stopping, yielding, syncing, return_exceptions=True)
            await asyncio.to_thread(pending.close)

    def _is_done(self, row: Row) -> bool:
        return self._ledger.has(row.number, retry_failed=self._options.retry_failed)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_SECONDS)
            await asyncio.to_thread(self._ledger.sync)

    async def _work(self, pending: _Pending, asker: Asker) -> None:
        while (row := await pending.next_row()) is not None:
            if row.error is not None:
                self.note(failure(row.number, row.custom_id, row.error))
                continue
            self._count(1)
            try:
                self.note(await self._asked(row, asker))
            finally:
                self._count(-1)

    def _count(self, change: int) -> None:
        self._asking += change
        self._meter.asking(change)

    async def _asked(self, row: Row, asker: Asker) -> Record:
        """Ask until the row is answered or refused for good, giving way whenever there is no room for it."""
        attempts, pause = 0.0, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await asker.ask(row)
            except TryAgain as told:
                error = told.error
                attempts += told.cost
            if attempts >= _ATTEMPTS:
                return failure(row.number, row.custom_id, error)
            left = self._options.patience_seconds - (time.monotonic() - self._last_end)
            if left < 0:
                raise StageUnavailable(
                    f"No row was answered for {self._options.patience_seconds:g} s: {error.message} What is done is "
                    "kept: run the same command again to go on.",
                    error.stage,
                ) from None
            wait = min(error.retry_after_seconds or pause, _LONGEST_WAIT_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311
            await self._wait(error, min(wait, left + _FIRST_PAUSE_SECONDS))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _wait(self, error: BatonError, seconds: float) -> None:
        limited = isinstance(error, RateLimitExceeded)
        self._limited += limited
        try:
            await asyncio.sleep(seconds)
        finally:
            self._limited -= limited

    async def _look_round(self) -> None:
        """Return once all rows wait for their key's limits while another owner's batch could go on."""
        while True:
            await asyncio.sleep(_LOOK_ROUND_SECONDS)
            if 0 < self._limited == self._asking and await self._others_wait():
                return
