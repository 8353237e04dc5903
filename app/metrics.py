"""Every metric of Baton in one table, and the two ways to record one.

In a cluster metrics go through Ray's metrics API, so that every node exports them beside Ray's and vLLM's own (as
``ray_<name>``). Elsewhere (unit tests, tools without a cluster) :class:`MemoryMetrics` keeps them in memory.
Label values come from closed sets (stage names, outcome classes, configured names), never from a request's text.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: name, kind, labels, help text (with the unit) and, for histograms, bucket bounds."""

    name: str
    kind: Literal["counter", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_MILLISECONDS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)

TABLE: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("baton_requests_total", "counter", ("route", "status", "profile"), "Requests answered, by HTTP status."),
        Metric("baton_stage_milliseconds", "histogram", ("stage",), "Time of one request in a stage.", _MILLISECONDS),
        Metric(
            "baton_time_to_first_token_milliseconds",
            "histogram",
            ("model",),
            "From the request to the first piece of the answer.",
            _MILLISECONDS,
        ),
        Metric("baton_sheds_total", "counter", ("stage",), "Requests refused because a queue was full."),
        Metric("baton_cancels_total", "counter", ("stage",), "Calls cancelled before their end, by stage."),
        Metric("baton_guardrail_total", "counter", ("direction", "action", "category"), "Guardrail findings."),
        Metric("baton_guardrail_failed_open_total", "counter", ("direction",), "Texts passed without a full verdict."),
        Metric("baton_handoff_bytes_total", "counter", ("hop", "path"), "Payload bytes handed from stage to stage."),
        Metric("baton_handoffs_total", "counter", ("hop", "path"), "Payloads handed from stage to stage."),
        Metric("baton_tokens_total", "counter", ("model", "direction"), "Tokens read (in) and generated (out)."),
        Metric("baton_config_refused_total", "counter", ("deployment",), "Live configurations refused."),
    )
}


class Metrics(Protocol):
    """Somewhere to record a metric of the table. Unknown names and labels raise ``KeyError``."""

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add to a counter or observe a histogram's value."""


def _labels(metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
    if set(labels) != set(metric.labels):
        raise KeyError(f"{metric.name} takes the labels {metric.labels}, got {tuple(labels)}")
    return dict(labels)


class MemoryMetrics:
    """Keeps sums in memory: ``totals[name][sorted label items]``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.totals: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(lambda: defaultdict(float))

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add ``value`` under the given labels."""
        key = tuple(sorted(_labels(TABLE[name], labels).items()))
        with self._lock:
            self.totals[name][key] += value

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all rows of ``name`` that carry the given labels."""
        wanted = set(labels.items())
        with self._lock:
            return sum(value for key, value in self.totals[name].items() if wanted <= set(key))


class RayMetrics:
    """Records through Ray's metrics API; instruments are made at first use, inside a Ray worker."""

    def __init__(self) -> None:
        self._instruments: dict[str, Any] = {}

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add to the counter or observe the histogram ``name``."""
        metric = TABLE[name]
        instrument = self._instruments.get(name) or self._make(metric)
        if metric.kind == "counter":
            if value > 0:  # Ray refuses to add nothing (an empty payload has no bytes)
                instrument.inc(value, tags=_labels(metric, labels))
        else:
            instrument.observe(value, tags=_labels(metric, labels))

    def _make(self, metric: Metric) -> Any:
        from ray.util import metrics as ray_metrics

        if metric.kind == "counter":
            made: Any = ray_metrics.Counter(metric.name, description=metric.help, tag_keys=metric.labels)
        else:
            made = ray_metrics.Histogram(
                metric.name, description=metric.help, boundaries=list(metric.buckets), tag_keys=metric.labels
            )
        self._instruments[metric.name] = made
        return made
