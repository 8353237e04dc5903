"""Shares and quantiles with the interval in which they truly lie, and differences of two of them.

Shares have Wilson's interval. A quantile's interval is that of its rank (binomial), widened to the edges of the buckets
that its ends fall in: where in its bucket a value lies, a histogram does not know. A difference of shares takes both
intervals by the square-and-add rule, which is Newcombe's; one of quantiles takes them in full: a bucket is no chance.
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
    """A value and the interval around it. ``coarse``: its ends are edges of buckets, so it lies above ``low``."""

    value: float
    low: float
    high: float
    coarse: bool = False


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
    low, _ = _bucket(buckets, float(first))
    _, high = _bucket(buckets, min(float(last) + 1, count))
    return Estimate(_at(buckets, wanted * count), low, high, coarse=True)


def _at(buckets: Buckets, rank: float) -> float:
    """Return the value at a rank, interpolated in its bucket; the last bound but infinity is the largest."""
    low, high = _bucket(buckets, rank)
    if math.isinf(high):
        return low
    below = max((count for bound, count in buckets if bound <= low), default=0.0)
    upto = max(count for bound, count in buckets if bound <= high)
    return low + (high - low) * (rank - below) / (upto - below)


def _bucket(buckets: Buckets, rank: float) -> tuple[float, float]:
    """Return the edges of the bucket in which a rank lies."""
    low, below = 0.0, 0.0
    for high, count in buckets:
        if count >= rank and count > below:
            return low, high
        low, below = high, count
    return low, math.inf


def difference(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """Return ``one - other``; None where one of them is not known."""
    if one is None or other is None:
        return None
    found = one.value - other.value
    if one.coarse or other.coarse:
        return Estimate(found, one.low - other.high, one.high - other.low, coarse=True)
    return Estimate(
        found,
        found - math.hypot(one.value - one.low, other.high - other.value),
        found + math.hypot(one.high - one.value, other.value - other.low),
    )


def is_real(found: Estimate) -> bool:
    """Tell whether a difference is more than chance: its interval leaves 0 out."""
    if found.coarse:  # what one bucket ends with, the next one does not hold
        return found.low >= 0 or found.high <= 0
    return found.low > 0 or found.high < 0
