"""Keeps vLLM's gauges on the metrics page while an engine has nothing to do.

Ray drops a gauge that was not set for two of its reports (20 s), and vLLM sets its own only while the engine works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

#: Well within what one report of Ray's covers.
_REPEAT_SECONDS = 5.0


class Held:
    """Repeats what was written last under each key, until the process ends."""

    def __init__(self, seconds: float = _REPEAT_SECONDS) -> None:
        self._seconds = seconds
        self._writes: dict[Hashable, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def write(self, key: Hashable, write: Callable[[], None]) -> None:
        """Call ``write``, now and every few seconds, in place of what was written under ``key`` before."""
        with self._lock:
            if not self._writes:
                threading.Thread(target=self._repeat, name="engine-gauges", daemon=True).start()
            self._writes[key] = write
            write()

    def _repeat(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._seconds):
            with self._lock:  # a value that is set meanwhile must come after
                for write in self._writes.values():
                    write()


def lasting(gauge: Any, held: Held) -> Any:
    """Return a class like ``gauge`` (vLLM's ``RayGaugeWrapper``) whose values are held."""

    class LastingGauge(gauge):  # type: ignore[misc]
        def set(self, value: float) -> None:
            key = (self.metric.info["name"], *sorted(self._tags.items()))
            held.write(key, lambda: super(LastingGauge, self).set(value))

        def set_to_current_time(self) -> None:
            # When a set of adapters was last at work: a row for each set, and held they would only become more.
            super().set(time.time())

    return LastingGauge


def hold_gauges() -> None:
    """Have the engines that this process starts from now on hold their gauges."""
    from vllm.v1.metrics.ray_wrappers import RayGaugeWrapper, RayKVConnectorProm, RayPrometheusStatLogger

    RayPrometheusStatLogger._gauge_cls = RayKVConnectorProm._gauge_cls = lasting(RayGaugeWrapper, Held())


def tell_idle(client: Any) -> None:
    """Record that an engine which has just started has nothing to do: it records nothing by itself before it works."""
    from vllm.v1.metrics.stats import SchedulerStats

    if (logger := getattr(client, "logger_manager", None)) is not None:
        for index in logger.engine_indexes:
            logger.record(SchedulerStats(), None, engine_idx=index)
