"""The numbers that gates judge by: as PromQL for a Prometheus, and read off a metrics page where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.config.rollout import Gate, Gauge, Judgement, Plan
from app.ops.rollout.machine import Verdict
from app.ops.rollout.state import State
from app.ops.top.window import Window
from app.ops.variants.estimates import Estimate, share

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

_JUDGED = f'outcome!~"{"|".join(LEFT_OUT)}"'

_HISTOGRAMS: Mapping[Gauge, tuple[str, float, Mapping[str, str]]] = {
    "latencyP95": (LATENCY, 0.95, {"outcome": ANSWERED}),
    "latencyP99": (LATENCY, 0.99, {"outcome": ANSWERED}),
    "timeToFirstTokenP95": (FIRST_TOKEN, 0.95, {}),
}


#: Numbers that are shares of what was counted, by what a share of 1 amounts to.
_SHARES: Mapping[Gauge, float] = {"errors": 1.0, "grounded": 1.0, "sloBurn": 1 / BUDGET}
#: What a number is taken of.
_COUNTED: Mapping[Gauge | None, str] = {
    "latencyP95": "answered requests",
    "latencyP99": "answered requests",
    "timeToFirstTokenP95": "first tokens",
    "grounded": "judged answers",
}
_CONFIDENCE = 0.95


class Unreachable(Exception):
    """Where numbers come from does not answer; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose numbers: a profile's variant, over so many seconds. An empty variant stands for the whole release.

    ``since``: what was before counts in no case (seconds since the epoch).
    """

    profile: str
    variant: str
    window_seconds: int
    since: float = 0.0


class Signals(Protocol):
    """Where the numbers come from."""

    def measure(self, judgement: Judgement, scope: Scope) -> float | None:
        """Return a number; ``None`` where there is none. Raises :class:`Unreachable`."""
        ...

    def basis(self, judgement: Judgement, scope: Scope) -> float:
        """Return how many requests or answers the number is taken of. Raises :class:`Unreachable`."""
        ...


def judge(plan: Plan, state: State, signals: Signals, share: float, now: float) -> list[Verdict]:
    """Return what each gate says now; what was before the step counts for none."""
    window = int(min(plan.window_seconds, max(1, now - state.since)))
    canary, stable = (Scope(plan.profile, name, window, state.since) for name in (plan.canary, plan.stable))
    found = []
    for gate in plan.gates:
        if gate.relative and share >= 100:
            found.append(Verdict(gate.title, "good", f"{plan.stable} has no traffic to compare with"))
            continue
        found.append(_judged(gate, signals, canary, stable if gate.relative else None))
    return found


def _judged(gate: Gate, signals: Signals, canary: Scope, stable: Scope | None) -> Verdict:
    """Return what a gate says; where there is too little to judge by, or nobody to ask, it says that."""
    counts = []
    try:
        for scope in filter(None, (canary, stable)):
            counts.append(signals.basis(gate, scope))
            if counts[-1] < gate.min_requests:
                return Verdict(gate.title, "undecided", too_few(gate, counts[-1], scope))
    except Unreachable as error:
        return Verdict(gate.title, "unreachable", str(error))
    return verdict(gate, signals, canary, stable, counts)


def too_few(gate: Gate, count: float, scope: Scope) -> str:
    """Return how much there is, and how much the gate wants."""
    whose = "the release" if gate.gate == "sloBurn" else scope.variant
    return f"{count:.0f} of at least {gate.min_requests} {noun(gate)} of {whose} in {scope.window_seconds} s"


def noun(gate: Gate) -> str:
    """Return the name of what a gate's number is taken of."""
    return _COUNTED.get(gate.gate, "requests")


def conditions(plan: Plan, state: State, signals: Signals, now: float) -> list[Verdict]:
    """Return what the conditions that pause say. One that cannot be told pauses."""
    window = int(min(plan.window_seconds, max(5, now - state.began)))
    scope = Scope(plan.profile, plan.canary, window)
    return [verdict(judgement, signals, scope) for judgement in plan.pause_while]


def verdict(
    judgement: Judgement,
    signals: Signals,
    scope: Scope,
    factor_of: Scope | None = None,
    counts: Sequence[float] = (),
) -> Verdict:
    """Compare a number with its bound, which is a multiple of the number of ``factor_of`` where that is given.

    With ``counts``, what both numbers are taken of, a share is bad only where that is more than chance.
    """
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
    found = _estimated(judgement, value, counts[0] if counts else None)
    of = _estimated(judgement, base, counts[1] if len(counts) > 1 else None)
    return _compared(judgement, found, of, factor_of is not None)


def _compared(judgement: Judgement, found: Estimate, of: Estimate, relative: bool) -> Verdict:
    least = judgement.side == "atLeast"
    bound = judgement.bound * of.value
    text = f"{found.value:.4g}, to be {'at least' if least else 'at most'} {bound:.4g}"
    if relative:
        text += f" ({judgement.bound:g} times {of.value:.4g})"
    if found.value >= bound if least else found.value <= bound:
        return Verdict(judgement.title, "good", text)
    if found.low < found.high:
        text += f"; by chance it may be {found.low:.4g} to {found.high:.4g}"
    sure = found.high < judgement.bound * of.low if least else found.low > judgement.bound * of.high
    return Verdict(judgement.title, "bad" if sure else "undecided", text if sure else f"{text}: more have to tell")


def _estimated(judgement: Judgement, value: float, count: float | None) -> Estimate:
    """Return a share with its interval (Wilson's), and any other number as it is."""
    scale = _SHARES.get(judgement.gate) if judgement.gate else None
    found = share(value / scale * count, count, _CONFIDENCE) if scale and count is not None else None
    if found is None or scale is None:
        return Estimate(value, value, value)
    return Estimate(value, found.low * scale, found.high * scale)


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
    whose = _whose(gauge, scope)
    bad = _rate(REQUESTS, whose, selector, f'outcome=~"{"|".join(HURT)}"')
    every = _rate(REQUESTS, whose, selector, _JUDGED)
    ratio = f"(sum({bad}) or 0 * sum({every})) / sum({every})"
    return f"({ratio}) / {BUDGET}" if gauge == "sloBurn" else ratio


def count_query(judgement: Judgement, scope: Scope, selector: str) -> str:
    """Return the PromQL of what a judgement's number is taken of; for a query of one's own, all requests."""
    gauge = judgement.gate
    metric, more = REQUESTS, [_JUDGED]
    if gauge is not None and gauge in _HISTOGRAMS:
        histogram, _, labels = _HISTOGRAMS[gauge]
        metric, more = f"{histogram}_count", [f'{name}="{value}"' for name, value in labels.items()]
    elif gauge == "grounded":
        metric, more = f"{GROUNDING}_count", []
    elif gauge is None:
        more = []
    return f"sum(increase({_selected(metric, _whose(gauge, scope), selector, *more)}[{scope.window_seconds}s]))"


def _whose(gauge: Gauge | None, scope: Scope) -> Scope:
    return Scope("", "", scope.window_seconds, scope.since) if gauge == "sloBurn" else scope


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
    counts = _outcomes(window, gauge, scope)
    bad, every = sum(counts.get(name, 0) for name in HURT), sum(counts.values())
    if not every:
        return None
    return bad / every / BUDGET if gauge == "sloBurn" else bad / every


def _outcomes(window: Window, gauge: Gauge | None, scope: Scope) -> dict[str, float]:
    """Return requests by outcome, without those that say nothing about the service."""
    profiles = [name for name in window.values("profile", REQUESTS) if name]
    own = {"profile": scope.profile, "variant": scope.variant}
    whose = [{"profile": name} for name in profiles] if gauge == "sloBurn" else [own]
    outcomes = [outcome for outcome in window.values("outcome", REQUESTS) if outcome not in LEFT_OUT]
    return {name: sum(window.increase(REQUESTS, outcome=name, **one) for one in whose) for name in outcomes}


def counted(window: Window, gauge: Gauge, scope: Scope) -> float:
    """Return what a built-in number is taken of, from two readings."""
    labels = {"profile": scope.profile, "variant": scope.variant}
    if gauge in _HISTOGRAMS:
        histogram, _, more = _HISTOGRAMS[gauge]
        return window.increase(f"{histogram}_count", **labels, **more)
    if gauge == "grounded":
        return window.increase(f"{GROUNDING}_count", **labels)
    return sum(_outcomes(window, gauge, scope).values())
