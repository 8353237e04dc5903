"""Queries of boards: those of ``promql.py``, limited by the board's variables and over Grafana's own window."""

from __future__ import annotations

from dashboards import promql
from dashboards.board import SCOPE, WINDOW

#: Limits a query to the variants that the board is set to; without routing the label is empty.
VARIANT = 'variant=~"$variant"'


def rate(metric: str, *matchers: str, by: tuple[str, ...]) -> str:
    """Return the rate per second of a counter, summed by labels."""
    return promql.rate(metric, WINDOW, *matchers, by=by, scope=SCOPE)


def quantile(share: float, histogram: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Return a quantile of a histogram."""
    return promql.quantile(share, histogram, WINDOW, *matchers, by=by, scope=SCOPE)


def total(metric: str, *matchers: str, by: tuple[str, ...]) -> str:
    """Return a gauge, summed by labels."""
    return promql.total(metric, *matchers, by=by, scope=SCOPE)


def largest(metric: str, *matchers: str, by: tuple[str, ...]) -> str:
    """Return the largest value of a gauge by labels."""
    return f"max by ({', '.join(by)}) ({promql.select(metric, *matchers, scope=SCOPE)})"


def quantiles(histogram: str, *matchers: str, name: str = "") -> tuple[tuple[str, str], ...]:
    """Return median, 95th and 99th percentile."""
    return tuple(
        (quantile(share, histogram, *matchers), f"{name} {legend}".strip())
        for share, legend in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )
