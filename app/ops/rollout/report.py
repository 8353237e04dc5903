"""What a rollout tells people: its history, a dry run, and the values to commit at the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import yaml

from app.config.rollout import Gate, Judgement, Plan
from app.ops.rollout.machine import Stage
from app.ops.rollout.signals import Scope, Signals, Unreachable, count_query, noun, query, too_few, verdict
from app.ops.rollout.state import Settings, State

_PHASES = {"running": "under way", "promoted": "promoted", "rolledBack": "rolled back"}


def history(state: State) -> Iterator[str]:
    """Yield the lines of ``status``."""
    yield f"{state.name}: {_PHASES[state.phase]}; {state.profile}: {state.stable} → {state.canary}"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in state.now.weights.items())
    yield f"weights: {weights}"
    for name, options in state.now.replicas.items():
        yield f"replicas of {name}: " + ", ".join(f"{key} {value}" for key, value in options.items())
    for entry in state.log:
        at = datetime.fromtimestamp(entry.at).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
        yield f"  {at}  {entry.reason:<16}  {entry.text}"


def dry_run(
    plan: Plan, first: Settings, way: list[Stage], signals: Signals, selector: str, window_text: str
) -> Iterator[str]:
    """Yield what a run would do, and what each gate would say now. Changes nothing."""
    pool = sum(first.weights.values())
    yield f"{plan.name}: {plan.canary} is to replace {plan.stable} in {plan.profile}; nothing is changed"
    for number, stage in enumerate(way):
        canary = pool * stage.share / 100
        line = f"  {number}. {plan.stable} {pool - canary:g}, {plan.canary} {canary:g} ({stage.share:g} %)"
        if plan.blue_green and stage.sizes:
            line += f"; replicas: {plan.blue_green.old} {stage.sizes[0]}, {plan.blue_green.new} {stage.sizes[1]}"
        yield line + (f"; at least {stage.seconds:g} s, judged" if stage.judged else "; until all applications run")
    yield f"  then {plan.stable} 0, {plan.canary} {pool:g}"
    canary_scope = Scope(plan.profile, plan.canary, plan.window_seconds)
    yield f"gates, with their values now ({window_text}):"
    for gate in plan.gates:
        yield from _gate(plan, gate, signals, canary_scope, selector)
    if plan.pause_while:
        yield "pauses while broken:"
    for judgement in plan.pause_while:
        yield f"  {judgement.title}: {_bound(judgement)}; now {_value(signals, judgement, canary_scope)}"
        yield f"    {query(judgement, canary_scope, selector)}"
    yield from _warnings(plan, signals, canary_scope)


def values(plan: Plan, state: State) -> str:
    """Return the values that say what is in force now."""
    variants = {name: {"weight": weight} for name, weight in state.now.weights.items()}
    found: dict[str, object] = {"settings": {"routing": {plan.profile: {"variants": variants}}}}
    models = {
        name.removeprefix("model-"): {"options": {"autoscaling_config": dict(options)}}
        for name, options in state.now.replicas.items()
    }
    if models:
        found["models"] = models
    return yaml.safe_dump(found, sort_keys=False)


def _gate(plan: Plan, gate: Gate, signals: Signals, canary: Scope, selector: str) -> Iterator[str]:
    yield f"  {gate.title}: {_bound(gate)}, from {gate.min_requests} {noun(gate)} on; now {_now(signals, gate, canary)}"
    yield f"    {query(gate, canary, selector)}"
    yield f"    {count_query(gate, canary, selector)}"
    if gate.relative:
        stable = Scope(plan.profile, plan.stable, canary.window_seconds)
        yield f"    compared with {_value(signals, gate, stable)} of {plan.stable}"
        yield f"    {query(gate, stable, selector)}"


def _warnings(plan: Plan, signals: Signals, canary: Scope) -> Iterator[str]:
    """Yield a sentence for each gate and condition that could not be told if the rollout began now."""
    stable = Scope(plan.profile, plan.stable, canary.window_seconds)
    for gate in plan.gates:
        why = _unjudged(gate, signals, stable, canary)
        if why:
            yield (
                f"warning: {gate.title} cannot be judged now: {why}. While that lasts a step is held, and after "
                f"{plan.hold_seconds} s all goes back."
            )
    for judgement in plan.pause_while:
        found = verdict(judgement, signals, canary)
        if found.result in ("undecided", "unreachable"):
            yield f"warning: {judgement.title} cannot be told now: {found.text}. No step begins while that lasts."


def _unjudged(gate: Gate, signals: Signals, stable: Scope, canary: Scope) -> str:
    """Return why a gate has nothing to judge by; that a canary has no traffic yet is no reason."""
    try:
        counts = [signals.basis(gate, scope) for scope in (stable, canary)]
        numbers = [signals.measure(gate, scope) for scope in (stable, canary)]
    except Unreachable as error:
        return str(error)
    # Of the whole release, both are the same.
    count = counts[0] if gate.gate == "sloBurn" else sum(counts)
    if count < gate.min_requests:
        both = Scope(stable.profile, f"{stable.variant} and {canary.variant} together", stable.window_seconds)
        return f"there are {too_few(gate, count, both)}"
    if all(number is None or number != number for number in numbers):
        return "it gives no number for either variant"
    return ""


def _bound(judgement: Judgement) -> str:
    side = "at least" if judgement.side == "atLeast" else "at most"
    times = " times the stable variant's" if isinstance(judgement, Gate) and judgement.relative else ""
    return f"{side} {judgement.bound:g}{times}"


def _value(signals: Signals, judgement: Judgement, scope: Scope) -> str:
    try:
        value = signals.measure(judgement, scope)
    except Unreachable as error:
        return f"unknown: {error}"
    return "nothing" if value is None or value != value else f"{value:.4g}"


def _now(signals: Signals, gate: Gate, scope: Scope) -> str:
    try:
        return f"{_value(signals, gate, scope)} of {signals.basis(gate, scope):.0f}"
    except Unreachable as error:
        return f"unknown: {error}"
