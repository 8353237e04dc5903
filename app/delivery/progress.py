"""How far a download is, as a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Say = Callable[[str], None]
#: Between two lines.
INTERVAL_SECONDS = 10.0


class Progress:
    """Says how much of ``total`` bytes has come, at most every ``interval`` seconds; threads may share it."""

    def __init__(self, what: str, total: int, say: Say, interval: float = INTERVAL_SECONDS) -> None:
        self._what = what
        self._total = total
        self._say = say
        self._interval = interval
        self._lock = threading.Lock()
        self._done = 0
        self._began = self._said = time.monotonic()
        self._new = 0

    def add(self, count: int, *, there: bool = False) -> None:
        """Count bytes that came, or (``there``) that had come before; negative ones have to come again."""
        with self._lock:
            self._done += count
            self._new += 0 if there else count
            now = time.monotonic()
            due = now - self._said >= self._interval
            if due:
                self._said = now
        if due:
            self._say(self.line())

    def line(self) -> str:
        """Return the state of things: ``otter/otter-7b: 3.1 of 14.5 GB (21 %), 85.2 MB/s``."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        share = 100 * self._done // self._total if self._total else 100
        unit, size = ("GB", 1e9) if self._total >= 1e9 else ("MB", 1e6)
        done, total, rate = self._done / size, self._total / size, self._new / seconds / 1e6
        return f"{self._what}: {done:.1f} of {total:.1f} {unit} ({share} %), {rate:.1f} MB/s"
