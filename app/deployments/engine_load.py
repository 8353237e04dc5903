"""What an engine is busy with, as vLLM's scheduler tells it, for Serve's autoscaling."""

from __future__ import annotations

import time
from typing import Any


class EngineLoad:
    """Listens to vLLM like one of its stat loggers; an engine may have several schedulers (data parallelism)."""

    def __init__(self) -> None:
        self._schedulers: dict[int, tuple[float, float, float]] = {}
        self._requests = 0
        self._since = time.monotonic()

    def listen(self, engine_client: Any) -> None:
        """Be told by an engine's client from now on; one that keeps no statistics tells nothing."""
        manager = getattr(engine_client, "logger_manager", None)
        if manager is not None:
            manager.stat_loggers.append(self)

    def count_request(self) -> None:
        """Note that a request came."""
        self._requests += 1

    def stats(self) -> dict[str, float]:
        """Return the signals of :data:`app.scaling.SIGNALS`; requests per second since this was asked last."""
        now = time.monotonic()
        rate = self._requests / max(now - self._since, 1e-3)
        self._requests, self._since = 0, now
        found = {"requests_per_second": rate}
        if self._schedulers:
            running, waiting, used = zip(*self._schedulers.values(), strict=True)
            found |= {"running": sum(running), "waiting": sum(waiting), "kv_cache": max(used)}
        return found

    # --- what vLLM calls --------------------------------------------------------------------------------------------

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Take a scheduler's numbers after one of its steps."""
        if scheduler_stats is not None:
            waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            numbers = float(scheduler_stats.num_running_reqs), float(waiting), float(scheduler_stats.kv_cache_usage)
            self._schedulers[engine_idx] = numbers

    def log(self) -> None:
        """Print nothing."""

    def log_engine_initialized(self) -> None:
        """Print nothing."""

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        """Take no notice: Baton's engines do not sleep."""

    def record_admission_rejection(self, reason: str) -> None:
        """Take no notice: the gateway counts refusals."""
