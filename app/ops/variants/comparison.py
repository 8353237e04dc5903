"""What is known of each variant, from the counts of its metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from app.jobs import SHADOW_SUFFIX
from app.ops.top.window import Window
from app.ops.variants.estimates import Buckets, Estimate, difference, quantile, share

_OUTCOMES = "ray_baton_variant_outcomes_total"
_FIRST = "ray_baton_time_to_first_token_milliseconds"
_WHOLE = "ray_baton_request_milliseconds"
_GROUNDING = "ray_baton_grounding"
_HURT = ("failed", "timeout", "shed")
_STOPPED = ("blocked", "filtered")
#: Grounded is what its passages carry to more than this.
_GROUNDED = 0.5


@dataclass(frozen=True, slots=True)
class Row:
    """One variant; an estimate is None where nothing was counted. Shares lie in [0, 1], times are milliseconds."""

    variant: str
    answers: int
    measures: Mapping[str, Estimate | None]

    def against(self, other: Row) -> Mapping[str, Estimate | None]:
        """Return the difference to another variant in each measure."""
        return {name: difference(found, other.measures[name]) for name, found in self.measures.items()}


def rows(window: Window, profile: str, confidence: float) -> list[Row]:
    """Return a row per variant of a profile, the one with the most answers first; copies in the shadow are last."""
    outcomes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key in window.new.series.get(_OUTCOMES, {}):
        labels = dict(key)
        if labels.get("profile") == profile:
            name = labels["variant"] + (SHADOW_SUFFIX if labels["way"] == "shadow" else "")
            outcomes[name][labels["outcome"]] += window.increase(_OUTCOMES, **labels)
    found = [_row(window, profile, name, ended, confidence) for name, ended in outcomes.items()]
    return sorted(found, key=lambda row: (row.variant.endswith(SHADOW_SUFFIX), -row.answers, row.variant))


def _row(window: Window, profile: str, name: str, ended: Mapping[str, float], confidence: float) -> Row:
    answered = ended.get("answered", 0.0) + ended.get("filtered", 0.0)
    hurt = sum(ended.get(outcome, 0.0) for outcome in _HURT)
    stopped = sum(ended.get(outcome, 0.0) for outcome in _STOPPED)
    asked = answered + ended.get("blocked", 0.0) + hurt
    of = {"profile": profile, "variant": name}
    first, whole = _buckets(window, _FIRST, **of), _buckets(window, _WHOLE, outcome="answered", **of)
    grounding = _buckets(window, _GROUNDING, **of)
    judged = grounding[-1][1] if grounding else 0.0
    below = max((count for bound, count in grounding if bound <= _GROUNDED), default=0.0)
    return Row(
        name,
        round(answered),
        {
            "errors": share(hurt, answered + hurt, confidence),
            "blocked": share(stopped, asked, confidence),
            "grounded": share(judged - below, judged, confidence),
            "first token p50": quantile(0.5, first, confidence),
            "first token p95": quantile(0.95, first, confidence),
            "answer p50": quantile(0.5, whole, confidence),
            "answer p95": quantile(0.95, whole, confidence),
        },
    )


def _buckets(window: Window, histogram: str, **labels: str) -> Buckets:
    """Return the histogram of all rows with these labels."""
    found: dict[float, float] = defaultdict(float)
    wanted = set(labels.items())
    for key in window.new.series.get(f"{histogram}_bucket", {}):
        if wanted <= set(key):
            bound = float(dict(key)["le"])
            found[bound] += window.increase(f"{histogram}_bucket", **dict(key))
    ranked = sorted(found.items())
    return ranked if ranked and math.isinf(ranked[-1][0]) and ranked[-1][1] > 0 else []
