"""The numbers that gates judge by: as PromQL for a Prometheus, and read off a metrics page where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from app.config.rollout import Gate, Gauge, Judgement, Plan
from app.ops.rollout.machine import Verdict
from app.ops.rollout.state import State
from app.ops.top.window import Window

REQUESTS = "ray_baton_requests_total"
LATENCY = "ray_baton_request_milliseconds"
FIRST_TOKEN = "ray_baton_time_to_first_token_milliseconds"  # noqa: S105 - a metric's name
GROUNDING = "ray_baton_grounding"
#: A request that failed at once was not fast.
ANSWERED = "answered"

#: Outcomes that count against the service, and those that are the caller's or the guardrail's doing.
HURT = ("failed", "timeout", "shed")
LEFT_OUT = ("blocked", "refused", "cancelled", "own_deadline")
#: Share of bad requests that the objective of availability allows.
BUDGET = 0.005
#: An answer is carried by its passages from this share on.
GROUNDED = "0.5"

_HISTOGRAMS: Mapping[Gauge, tuple[str, float, Mapping[str, str]]] = {
    "latencyP95": (LATENCY, 0.95, {"outcome": ANSWERED}),
    "latencyP99": (LATENCY, 0.99, {"outcome": ANSWERED}),
    "timeToFirstTokenP95": (FIRST_TOKEN, 0.95, {}),
}


class Unreachable(Exception):
    """Where numbers come from does not answer; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose numbers: a profile's variant, over so many seconds. An empty variant stands for the whole release."""

    profile: str
    variant: str
    window_seconds: int


class Signals(Protocol):
    """Where the numbers come from."""

    def measure(self, judgement: Judgement, scope: Scope) -> float | None:
        """Return a number; ``None`` where there is none. Raises :class:`Unreachable`."""
        ...

    def requests(self, scope: Scope) -> float:
        """Return how many requests a variant had. Raises :class:`Unreachable`."""
        ...


def judge(plan: Plan, state: State, signals: Signals, share: float, now: float) -> list[Verdict]:
    """Return what each gate says now."""
    window = int(min(plan.window_seconds, max(5, now - state.began)))
    canary, stable = (Scope(plan.profile, variant, window) for variant in (plan.canary, plan.stable))
    found = []
    for gate in plan.gates:
        if gate.relative and share >= 100:
            found.append(Verdict(gate.title, "good", f"{plan.stable} has no traffic to compare with"))
            continue
        compared = stable if gate.relative else None
        found.append(_too_few(gate, signals, canary, compared) or verdict(gate, signals, canary, compared))
    return found


def _too_few(gate: Gate, signals: Signals, *scopes: Scope | None) -> Verdict | None:
    """Return a verdict where a variant had too few requests, or where nobody can tell."""
    for scope in filter(None, scopes):
        try:
            count = signals.requests(scope)
        except Unreachable as error:
            return Verdict(gate.title, "unreachable", str(error))
        if count < gate.min_requests:
            text = (
                f"{count:.0f} of at least {gate.min_requests} requests of {scope.variant} in {scope.window_seconds} s"
            )
            return Verdict(gate.title, "undecided", text)
    return None


def conditions(plan: Plan, state: State, signals: Signals, now: float) -> list[Verdict]:
    """Return what the conditions that pause say. One that cannot be told pauses."""
    window = int(min(plan.window_seconds, max(5, now - state.began)))
    scope = Scope(plan.profile, plan.canary, window)
    return [verdict(judgement, signals, scope) for judgement in plan.pause_while]


def verdict(judgement: Judgement, signals: Signals, scope: Scope, factor_of: Scope | None = None) -> Verdict:
    """Compare a number with its bound, which is a multiple of the number of ``factor_of`` where that is given."""
    try:
        value = signals.measure(judgement, scope)
        base = signals.measure(judgement, factor_of) if factor_of else 1.0
    except Unreachable as error:
        return Verdict(judgement.title, "unreachable", str(error))
    if value is None or math.isnan(value):
        return Verdict(judgement.title, "undecided", f"no number for {scope.variant}")
    if base is None or math.isnan(base):
        variant = factor_of.variant if factor_of else ""
        return Verdict(judgement.title, "undecided", f"no number for {variant} to compare with")
    bound = judgement.bound * base
    least = judgement.side == "atLeast"
    good = value >= bound if least else value <= bound
    wanted = f"{'at least' if least else 'at most'} {bound:.4g}"
    if factor_of:
        wanted += f" ({judgement.bound:g} times {base:.4g})"
    return Verdict(judgement.title, "good" if good else "bad", f"{value:.4g}, to be {wanted}")


def query(judgement: Judgement, scope: Scope, selector: str) -> str:
    """Return the PromQL of a judgement. ``selector``: matchers of the release, without braces; may be empty."""
    if judgement.query is not None:
        text = judgement.query
        known = {
            "profile": scope.profile,
            "variant": scope.variant,
            "window": f"{scope.window_seconds}s",
            "selector": selector,
        }
        for name, value in known.items():
            text = text.replace(f"{{{name}}}", value)
        return text
    gauge = judgement.gate
    assert gauge is not None
    if gauge in _HISTOGRAMS:
        histogram, share, labels = _HISTOGRAMS[gauge]
        more = [f'{name}="{value}"' for name, value in labels.items()]
        return f"histogram_quantile({share}, sum by (le) ({_rate(f'{histogram}_bucket', scope, selector, *more)}))"
    if gauge == "grounded":
        low = _rate(f"{GROUNDING}_bucket", scope, selector, f'le="{GROUNDED}"')
        return f"1 - sum({low}) / sum({_rate(f'{GROUNDING}_count', scope, selector)})"
    whose = Scope("", "", scope.window_seconds) if gauge == "sloBurn" else scope
    bad = _rate(REQUESTS, whose, selector, f'outcome=~"{"|".join(HURT)}"')
    every = _rate(REQUESTS, whose, selector, f'outcome!~"{"|".join(LEFT_OUT)}"')
    ratio = f"(sum({bad}) or 0 * sum({every})) / sum({every})"
    return f"({ratio}) / {BUDGET}" if gauge == "sloBurn" else ratio


def count_query(scope: Scope, selector: str) -> str:
    """Return the PromQL of a variant's number of requests."""
    return f"sum(increase({_selected(REQUESTS, scope, selector)}[{scope.window_seconds}s]))"


def _rate(metric: str, scope: Scope, selector: str, *more: str) -> str:
    return f"rate({_selected(metric, scope, selector, *more)}[{scope.window_seconds}s])"


def _selected(metric: str, scope: Scope, selector: str, *more: str) -> str:
    # Requests without a profile are no questions: lists, documents, embeddings.
    own = [f'profile="{scope.profile}"', f'variant="{scope.variant}"'] if scope.variant else ['profile!=""']
    return f"{metric}{{{','.join(part for part in (selector, *own, *more) if part)}}}"


def measured(window: Window, gauge: Gauge, scope: Scope) -> float | None:
    """Return a built-in number from two readings of a metrics page."""
    labels = {"profile": scope.profile, "variant": scope.variant}
    if gauge in _HISTOGRAMS:
        histogram, share, more = _HISTOGRAMS[gauge]
        return window.quantile(share, histogram, **labels, **more)
    if gauge == "grounded":
        every = window.increase(f"{GROUNDING}_count", **labels)
        low = window.increase(f"{GROUNDING}_bucket", le=GROUNDED, **labels)
        return 1 - low / every if every else None
    profiles = [name for name in window.values("profile", REQUESTS) if name]
    whose = [{"profile": name} for name in profiles] if gauge == "sloBurn" else [labels]
    outcomes = [outcome for outcome in window.values("outcome", REQUESTS) if outcome not in LEFT_OUT]
    counts = {name: sum(window.increase(REQUESTS, outcome=name, **one) for one in whose) for name in outcomes}
    bad, every = sum(counts.get(name, 0) for name in HURT), sum(counts.values())
    if not every:
        return None
    return bad / every / BUDGET if gauge == "sloBurn" else bad / every


def counted(window: Window, scope: Scope) -> float:
    """Return a variant's number of requests from two readings."""
    return window.increase(REQUESTS, profile=scope.profile, variant=scope.variant)
