"""What happened between two readings of the metrics pages: rates, quantiles, and the gauges' present values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
#: One page's process tells when it was started; it lives as long as the node's Ray.
_STARTED = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Reading:
    """All series of one or several pages at a time (seconds since the epoch): name → labels → value."""

    at: float
    series: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)

    @staticmethod
    def of(pages: Iterable[str], at: float) -> Reading:
        """Return the reading of pages in Prometheus' text format; rows that stand on several pages are added up."""
        series: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        for page in pages:
            for family in text_string_to_metric_families(page):
                for sample in family.samples:
                    series[sample.name][tuple(sorted(sample.labels.items()))] += sample.value
        return Reading(at, series)

    def beginning(self) -> Reading:
        """Return the reading of the moment when the first node started: nothing had happened yet."""
        started = self.series.get(_STARTED, {}).values()
        return Reading(min((value for value in started if value > 0), default=self.at - 1))


@dataclass(frozen=True, slots=True)
class Window:
    """The time from one reading to another. Names of metrics are those of the pages, with ``ray_``."""

    old: Reading
    new: Reading

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.001, self.new.at - self.old.at)

    def increase(self, name: str, **labels: str) -> float:
        """Return how much a counter grew. A series that starts anew (its process did) counts from nothing."""
        before = self.old.series.get(name, {})
        rows = self._rows(name, labels)
        return sum(value - before.get(key, 0) if value >= before.get(key, 0) else value for key, value in rows)

    def rate(self, name: str, **labels: str) -> float:
        """Return a counter's growth per second."""
        return self.increase(name, **labels) / self.seconds

    def quantile(self, share: float, histogram: str, **labels: str) -> float:
        """Return a quantile of what a histogram observed, interpolated in its bucket; NaN where there was nothing."""
        bounds: dict[float, float] = defaultdict(float)
        for key, _ in self._rows(f"{histogram}_bucket", labels):
            bound = dict(key)["le"]
            bounds[float(bound)] += self.increase(f"{histogram}_bucket", **dict(key))
        ranked = sorted(bounds.items())
        if not ranked or ranked[-1][1] <= 0:
            return math.nan
        return _interpolated(ranked, share * ranked[-1][1])

    def gauge(self, name: str, **labels: str) -> float | None:
        """Return the present sum of a gauge's rows; None where there is none."""
        rows = list(self._rows(name, labels))
        return sum(value for _, value in rows) if rows else None

    def mean(self, name: str, **labels: str) -> float | None:
        """Return the present mean of a gauge's rows; None where there is none."""
        rows = [value for _, value in self._rows(name, labels)]
        return sum(rows) / len(rows) if rows else None

    def values(self, label: str, *names: str) -> list[str]:
        """Return the values that a label has in the rows of some metrics, sorted."""
        rows = (key for name in names for key in self.new.series.get(name, {}))
        return sorted({dict(key)[label] for key in rows if label in dict(key)})

    def _rows(self, name: str, labels: Mapping[str, str]) -> Iterable[tuple[Labels, float]]:
        wanted = set(labels.items())
        return ((key, value) for key, value in self.new.series.get(name, {}).items() if wanted <= set(key))


def _interpolated(ranked: list[tuple[float, float]], wanted: float) -> float:
    low, below = 0.0, 0.0
    for high, count in ranked:
        if count >= wanted:
            if math.isinf(high):
                return low
            return low + (high - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = high, count
    return low
