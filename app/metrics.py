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

Key = tuple[tuple[str, str], ...]
#: How often gauges are handed to Ray, which drops one 20 s after it was set last.
_GAUGE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: name, kind, labels, help text (with the unit) and, for histograms, bucket bounds."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, "counter", labels, text)


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, "gauge", labels, text)


def _histogram(name: str, labels: tuple[str, ...], text: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", labels, text, buckets)


_SHORT = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
_LONG = (10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000)
_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1_000, 2_000)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)

_REQUESTS = (
    _counter(
        "baton_requests_total",
        ("route", "status", "outcome", "profile", "variant", "priority"),
        "Requests answered, by HTTP status and by how they ended.",
    ),
    _histogram(
        "baton_request_milliseconds",
        ("route", "outcome", "profile", "variant", "priority"),
        "Milliseconds from a request to the last byte of its reply.",
        _LONG,
    ),
    _histogram(
        "baton_time_to_first_token_milliseconds",
        ("model", "profile", "variant", "priority"),
        "Milliseconds from the request to the first piece of the answer.",
        _SHORT,
    ),
    _histogram(
        "baton_inter_token_milliseconds",
        ("model",),
        "Mean milliseconds between two pieces of an answer; one observation per answer.",
        _INTERVALS,
    ),
    _counter("baton_tokens_total", ("model", "direction"), "Tokens read (in) and generated (out)."),
    _counter(
        "baton_variant_outcomes_total",
        ("profile", "variant", "way", "outcome"),
        "Answers of routed profiles, by how the variant was chosen and how they ended; in the shadow as well.",
    ),
)
_STAGES = (
    _histogram("baton_stage_milliseconds", ("stage",), "Milliseconds that one request spends in a stage.", _SHORT),
    _histogram(
        "baton_queue_milliseconds",
        ("stage", "priority"),
        "Milliseconds that one request waits in the gateway's process before a stage takes it.",
        _SHORT,
    ),
    _gauge(
        "baton_queued",
        ("stage", "priority"),
        "Requests that wait in the gateway's process before a stage takes them.",
    ),
    _gauge("baton_ongoing", ("stage", "priority"), "Requests that hold a place of the gateway, a model or a stage."),
    _counter("baton_sheds_total", ("stage", "priority"), "Requests refused because a queue was full."),
    _counter("baton_timeouts_total", ("stage",), "Requests whose deadline passed, by the stage that had them."),
    _counter("baton_cancels_total", ("stage",), "Calls cancelled before their end, by stage."),
    _counter("baton_retries_total", ("stage",), "Calls sent again: the stage was full, or its replica died."),
)
_HOPS = (
    _counter("baton_handoffs_total", ("hop", "path"), "Payloads handed from stage to stage."),
    _counter("baton_handoff_bytes_total", ("hop", "path"), "Payload bytes handed from stage to stage."),
    _histogram(
        "baton_handoff_milliseconds",
        ("hop", "path"),
        "Milliseconds from the sending of a payload until its consumer can read it, the way through Serve included.",
        _SHORT,
    ),
)
_QUALITY = (
    _counter(
        "baton_guardrail_total",
        ("direction", "action", "category", "profile", "variant"),
        "Findings of the guardrail; a verdict without any counts once, as allow and none.",
    ),
    _counter("baton_guardrail_failed_open_total", ("direction",), "Texts passed without a full verdict."),
    _histogram("baton_retrieval_milliseconds", ("part",), "Milliseconds to embed a question and to search.", _SHORT),
    _histogram("baton_retrieval_score", (), "Cosine of the best passage of a retrieval.", _SHARES),
    _counter("baton_retrieval_empty_total", (), "Retrievals that found no passage."),
    _gauge("baton_index_passages", ("collection",), "Passages of a collection."),
    _gauge("baton_index_documents", ("collection",), "Documents of a collection."),
    _counter("baton_cut_passages_total", (), "Passages left out of a prompt because the window was full."),
    _counter("baton_cut_turns_total", (), "Turns left out of a prompt because the window was full."),
    _counter(
        "baton_json_total",
        ("status", "profile", "variant"),
        "Answers checked against a response format, by what came of it.",
    ),
    _histogram("baton_grounding", ("profile", "variant"), "Share of an answer that its passages carry.", _SHARES),
    _histogram(
        "baton_confidence", ("profile",), "Probability that an answer is right, as the reply states it.", _SHARES
    ),
)
_BATCH = (
    _counter("baton_batch_rows_total", ("outcome",), "Rows of batches that ended, answered or failed."),
    _gauge("baton_batch_rows_at_work", (), "Rows of batches that are being answered or wait for room."),
)
_CONFIGURATION = (
    _counter("baton_config_refused_total", ("deployment",), "Live configurations refused."),
    _gauge(
        "baton_key_expires_timestamp_seconds",
        ("key",),
        "When an API key stops to open anything, in seconds since 1970; 0: never, or it is gone.",
    ),
    _gauge("baton_config_version", ("deployment",), "Checksum of the settings in force; equal settings, equal value."),
)

TABLE: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_REQUESTS, *_STAGES, *_HOPS, *_QUALITY, *_BATCH, *_CONFIGURATION)
}


class Metrics(Protocol):
    """Somewhere to record a metric of the table. Unknown names and labels raise ``KeyError``."""

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add to a counter or observe a histogram's value."""

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge, which holds until it is set again or forgotten."""

    def forget(self, name: str, /, **labels: str) -> None:
        """Let go of a gauge whose subject is gone; of one that was never set there is nothing to forget."""


def _row(name: str, labels: Mapping[str, str], gauge: bool) -> Metric:
    metric = TABLE[name]
    if set(labels) != set(metric.labels):
        raise KeyError(f"{name} takes the labels {metric.labels}, got {tuple(labels)}")
    if (metric.kind == "gauge") != gauge:
        raise KeyError(f"{name} is a {metric.kind}")
    return metric


class MemoryMetrics:
    """Keeps sums, counts of observations and the last value of gauges in memory, by sorted label items."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, dict[Key, float]] = defaultdict(lambda: defaultdict(float))
        self._counts: dict[str, dict[Key, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add ``value`` under the given labels."""
        _row(name, labels, gauge=False)
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._totals[name][key] += value
            self._counts[name][key] += 1

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Hold ``value`` under the given labels."""
        _row(name, labels, gauge=True)
        with self._lock:
            self._totals[name][tuple(sorted(labels.items()))] = value

    def forget(self, name: str, /, **labels: str) -> None:
        """Hold nothing under the given labels any more."""
        _row(name, labels, gauge=True)
        with self._lock:
            self._totals[name].pop(tuple(sorted(labels.items())), None)

    def holds(self, name: str, **labels: str) -> bool:
        """Tell whether there is a row of ``name`` with just these labels."""
        with self._lock:
            return tuple(sorted(labels.items())) in self._totals[name]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all rows of ``name`` that carry the given labels."""
        wanted = set(labels.items())
        with self._lock:
            return sum(value for key, value in self._totals[name].items() if wanted <= set(key))

    def count(self, name: str, **labels: str) -> int:
        """Return how often ``name`` was recorded under the given labels."""
        wanted = set(labels.items())
        with self._lock:
            return sum(count for key, count in self._counts[name].items() if wanted <= set(key))


class RayMetrics:
    """Records through Ray's metrics API; instruments are made at first use, inside a Ray worker."""

    def __init__(self, gauge_seconds: float = _GAUGE_SECONDS) -> None:
        self._instruments: dict[str, Any] = {}
        self._gauge_seconds = gauge_seconds
        self._gauges: dict[tuple[str, Key], float] = {}
        self._reports = False
        self._lock = threading.Lock()

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add to the counter or observe the histogram ``name``."""
        metric = _row(name, labels, gauge=False)
        instrument = self._instrument(metric)
        if metric.kind == "histogram":
            instrument.observe(value, tags=labels)
        elif value > 0:  # Ray refuses to add nothing (an empty payload has no bytes)
            instrument.inc(value, tags=labels)

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Note the gauge's value; a thread hands it to Ray every few seconds.

        Handing it over here takes 16 us on two busy cores (a histogram 18, a counter 10), and a request sets twenty.
        """
        _row(name, labels, gauge=True)
        with self._lock:
            if not self._reports:
                self._reports = True
                threading.Thread(target=self._report, name="baton-gauges", daemon=True).start()
            self._gauges[name, tuple(sorted(labels.items()))] = value

    def forget(self, name: str, /, **labels: str) -> None:
        """Hand the gauge over no more; Ray drops it soon after."""
        _row(name, labels, gauge=True)
        with self._lock:
            self._gauges.pop((name, tuple(sorted(labels.items()))), None)

    def _report(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._gauge_seconds):
            with self._lock:
                held = list(self._gauges.items())
            for (name, key), value in held:
                self._instrument(TABLE[name]).set(value, tags=dict(key))

    def _instrument(self, metric: Metric) -> Any:
        found = self._instruments.get(metric.name)
        if found is None:
            found = self._instruments[metric.name] = self._make(metric)
        return found

    def _make(self, metric: Metric) -> Any:
        from ray.util import metrics as ray_metrics

        if metric.kind == "counter":
            return ray_metrics.Counter(metric.name, description=metric.help, tag_keys=metric.labels)
        if metric.kind == "gauge":
            return ray_metrics.Gauge(metric.name, description=metric.help, tag_keys=metric.labels)
        return ray_metrics.Histogram(
            metric.name, description=metric.help, boundaries=list(metric.buckets), tag_keys=metric.labels
        )
