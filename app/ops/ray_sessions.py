"""Ray's processes in sessions of their own, so that Ctrl-C in a terminal reaches this process alone.

A terminal sends SIGINT to its whole foreground group. Ray blocks it in the processes that it starts, but Python's
``multiprocessing`` lets it through again in what those start: the dashboard's helpers died of it, and Serve's REST API
hung, just when it was needed to stop in order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from app.processes import PROCESSES, stat_fields

_POLL_SECONDS = 0.1
_KILL_SECONDS = 5.0


class RaySessions:
    """The sessions of the Ray processes that this process started."""

    def __init__(self) -> None:
        self._leaders: set[int] = set()

    @contextmanager
    def around_start(self) -> Iterator[None]:
        """Give each process that Ray starts in this block a session; what it starts later belongs to that session."""
        from ray._private import services

        stock = services.ConsolePopen
        leaders = self._leaders

        class Leader(services.ConsolePopen):  # type: ignore[misc]
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options | {"start_new_session": True})
                leaders.add(self.pid)

        services.ConsolePopen = Leader
        try:
            yield
        finally:
            services.ConsolePopen = stock

    def end(self, patience: float) -> None:
        """Wait ``patience`` seconds for the processes to end by themselves, then kill those that are left."""
        end = time.monotonic() + patience
        while self._alive() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        # Killed ones take a moment to give back what they map.
        end = time.monotonic() + _KILL_SECONDS
        while self.kill() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def kill(self) -> list[int]:
        """Kill what is left of the sessions; return the process ids."""
        alive = self._alive()
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return alive

    def _alive(self) -> list[int]:
        return [int(path.name) for path in PROCESSES.iterdir() if path.name.isdigit() and self._is_alive(path)]

    def _is_alive(self, process: Path) -> bool:
        try:
            fields = stat_fields(process)
        except OSError:
            return False
        state, session = fields[0], int(fields[3])
        return session in self._leaders and state not in "ZX"
