"""Shares and quantiles with the interval in which they truly lie, and differences of two of them.

Shares have Wilson's interval. A quantile's interval is that of its rank (binomial), read off the histogram: it is no
finer than the buckets. A difference takes both intervals by the square-and-add rule, which for shares is Newcombe's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

#: Upper bounds of buckets, ascending, with the number of values up to each.
Buckets = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the interval around it."""

    value: float
    low: float
    high: float


def share(part: float, whole: float, confidence: float) -> Estimate | None:
    """Return a share with Wilson's interval; None where there is nothing to share. Counts are rounded."""
    count = round(whole)
    if count < 1:
        return None
    hits = min(count, max(0, round(part)))
    interval = stats.binomtest(hits, count).proportion_ci(confidence, method="wilson")
    return Estimate(hits / count, float(interval.low), float(interval.high))


def quantile(wanted: float, buckets: Buckets, confidence: float) -> Estimate | None:
    """Return a quantile of what a histogram observed; None where that is nothing."""
    count = round(buckets[-1][1]) if buckets else 0
    if count < 1:
        return None
    outside = (1 - confidence) / 2
    first, last = stats.binom.ppf((outside, 1 - outside), count, wanted)
    value, low, high = (_at(buckets, min(float(rank), count)) for rank in (wanted * count, first, last + 1))
    return Estimate(value, low, high)


def _at(buckets: Buckets, rank: float) -> float:
    """Return the value at a rank, interpolated in its bucket; the last bound but infinity is the largest."""
    low, below = 0.0, 0.0
    for high, count in buckets:
        if count >= rank and count > below:
            if math.isinf(high):
                return low
            return low + (high - low) * (rank - below) / (count - below)
        low, below = high, count
    return low


def difference(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """Return ``one - other``; None where one of them is not known."""
    if one is None or other is None:
        return None
    found = one.value - other.value
    return Estimate(
        found,
        found - math.hypot(one.value - one.low, other.high - other.value),
        found + math.hypot(one.high - one.value, other.value - other.low),
    )


def is_real(found: Estimate) -> bool:
    """Tell whether a difference is more than chance: its interval leaves 0 out."""
    return found.low > 0 or found.high < 0
