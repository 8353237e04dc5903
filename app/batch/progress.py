"""Tells a person how far a batch is."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from app.batch.ledger import Record
from app.batch.places import Place
from app.batch.rows import lines

_REPORT_SECONDS = 2.0


def count_rows(place: Place, max_bytes: int) -> int:
    """Return the number of rows without reading what is in them."""
    if place.is_parquet:
        with place.open_parquet() as found:
            return int(found.metadata.num_rows)
    with place.open() as source:
        return sum(1 for _ in lines(source, max_bytes))


class Progress:
    """Counts rows of this run; tells every two seconds on standard error."""

    def __init__(self, total: int, done: int, out: TextIO | None = None) -> None:
        self._total = total
        self._before = self._done = done
        self._failed = 0
        self._out = out or sys.stderr
        self._started = self._shown = time.monotonic()

    def ended(self, record: Record) -> None:
        """Count a row that ended."""
        self._done += 1
        self._failed += record.failed
        now = time.monotonic()
        if now - self._shown >= _REPORT_SECONDS:
            self._shown = now
            print(f"batch: {self.told()}", file=self._out, flush=True)

    def told(self) -> str:
        """Return where the run stands, with its rate and what is left at that rate."""
        new = self._done - self._before
        rate = new / max(time.monotonic() - self._started, 0.001)
        left = self._total - self._done
        ahead = f", about {left / rate:.0f} s left" if left > 0 and rate > 0 else ""
        return f"{self._done}/{self._total} rows, {self._failed} failed in this run, {rate:.1f} rows/s{ahead}"
