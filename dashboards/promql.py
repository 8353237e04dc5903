"""PromQL in the house's form. Rules name one release, which the chart puts in; boards use their variables."""

from __future__ import annotations

#: What the chart replaces with the release's own namespace and job.
RELEASE = 'namespace="baton",job="baton-metrics"'
NAMESPACE = 'namespace="baton"'
#: Routes that answer a question or embed a text.
ANSWERING = 'route=~"(/.profile.)?/v1/(chat/completions|completions|embeddings)|/generate"'
#: Those and all others that do work for a question: searches, applications, the engine loop.
WORKING = (
    'route=~"(/.profile.)?/v1/(chat/completions|completions|embeddings)|/v1/retrieve|(/engine-loop)?/generate|/analyze'
    '|/articles"'
)
#: Requests that count for availability: what the guardrail, the caller or his mistake ended is left out, and what
#: passed a deadline of the caller's own that is shorter than the default.
COUNTED = 'outcome!~"blocked|refused|cancelled|own_deadline"'
HURT = 'outcome=~"failed|timeout|shed"'
#: Answers that somebody got: those of variants in the shadow are recorded under a name of their own.
GIVEN = 'variant!~".+~shadow"'
#: Requests that somebody waits for. Those of batches wait and are refused on purpose, and come again; the chart puts
#: the names of their classes in.
AWAITED = 'priority!~"batch"'
BY = ("namespace", "job")
_NOT_RENAMED = 'exported_namespace=""'


def select(metric: str, *matchers: str, scope: str = RELEASE) -> str:
    """Return a selector of ``metric`` within the release."""
    return f"{metric}{{{','.join((scope, *matchers))}}}"


def rate(metric: str, window: str, *matchers: str, by: tuple[str, ...] = BY, scope: str = RELEASE) -> str:
    """Return the rate per second of a counter, summed."""
    return f"sum by ({', '.join(by)}) (rate({select(metric, *matchers, scope=scope)}[{window}]))"


def grown(metric: str, window: str, *matchers: str, by: tuple[str, ...] = BY, scope: str = RELEASE) -> str:
    """Return by how much a counter grew within a window, summed.

    Each process has counters of its own that begin to exist with their first count, which `rate` and `increase` miss: a
    burst on a new replica would not be there. What was not there for six hours before the window is new and counts
    whole; after a gap in scraping, the last value before it is what there was.
    """
    now = f"last_over_time({select(metric, *matchers, scope=scope)}[{window}])"
    before = f"last_over_time({select(metric, *matchers, scope=scope)}[6h] offset {window})"
    return f"sum by ({', '.join(by)}) (clamp_min({now} - ({before} or 0 * {now}), 0))"


def quantile(
    share: float, histogram: str, window: str, *matchers: str, by: tuple[str, ...] = BY, scope: str = RELEASE
) -> str:
    """Return a quantile of a histogram over a window; ``histogram`` is named without ``_bucket``."""
    buckets = rate(f"{histogram}_bucket", window, *matchers, by=(*by, "le"), scope=scope)
    return f"histogram_quantile({share}, {buckets})"


def of_objects(metric: str, *matchers: str) -> str:
    """Return what another exporter says of objects in the release's namespace, with that as their `namespace`.

    A scrape that keeps the target's own labels, which is the default, has renamed the object's to `exported_namespace`
    (and a pod's name to `exported_pod`).
    """
    told = [f"exported_{matcher}" if matcher.startswith("pod") else matcher for matcher in matchers]
    renamed = f"{metric}{{{','.join(('exported_' + NAMESPACE, *told))}}}"
    own = f"{metric}{{{','.join((NAMESPACE, _NOT_RENAMED, *matchers))}}}"
    return f'(label_replace({renamed}, "namespace", "$1", "exported_namespace", "(.+)") or {own})'


def total(metric: str, *matchers: str, by: tuple[str, ...] = BY, scope: str = RELEASE) -> str:
    """Return a gauge, summed."""
    return f"sum by ({', '.join(by)}) ({select(metric, *matchers, scope=scope)})"
