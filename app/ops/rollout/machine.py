"""The rollout as a pure function: what was seen and what time it is give what comes next. No clock, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.config.rollout import Plan
from app.ops.rollout.state import Options, Reason, Settings, State

Result = Literal["good", "bad", "undecided", "unreachable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate or condition says: its name, the outcome and a clause with the numbers."""

    name: str
    result: Result
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: at the gates, at the conditions that pause, and at the applications.

    ``starting``: what is not running yet with the replicas that it is meant to have; empty: everything runs.
    """

    verdicts: tuple[Verdict, ...] = ()
    pauses: tuple[Verdict, ...] = ()
    starting: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the way. ``sizes``: replicas of the old and new application.

    ``judged``: whether gates must hold before the next stage. One that is broken ends the rollout at any share above 0.
    """

    share: float
    seconds: float = 0.0
    judged: bool = True
    sizes: tuple[int, int] | None = None


def stages(plan: Plan, in_place: bool = False, sizes: tuple[int, int] = (0, 0)) -> list[Stage]:
    """Return the way: from a canary without traffic to the last stage before it is promoted."""
    if plan.blue_green is None:
        return [Stage(0, judged=False), *(Stage(step.share, step.seconds) for step in plan.steps)]
    if in_place:
        return _in_place(plan, plan.blue_green.watch_seconds, sizes[0])
    way = [Stage(0, judged=False, sizes=sizes)]
    way += [Stage(step.share, step.seconds, sizes=sizes) for step in plan.steps if step.share < 100]
    return [*way, Stage(100, plan.blue_green.watch_seconds, sizes=sizes)]


def _in_place(plan: Plan, watch_seconds: float, replicas: int) -> list[Stage]:
    """One replica changes sides at a time, and traffic follows; the last old one stays until the new are judged."""
    seconds = plan.steps[-1].seconds
    way = [Stage(0, judged=False, sizes=(replicas, 0))]
    for moved in range(1, replicas):
        sizes = (replicas - moved, moved)
        way.append(Stage(100 * (moved - 1) / replicas, judged=False, sizes=sizes))
        way.append(Stage(100 * moved / replicas, seconds, sizes=sizes))
    return [*way, Stage(100, watch_seconds, sizes=(1, replicas - 1))]


def begin(
    plan: Plan,
    first: Settings,
    now: float,
    *,
    identity: str,
    in_place: bool = False,
    sizes: tuple[int, int] = (0, 0),
) -> State:
    """Return the state of a rollout that begins: the canary without traffic, all applications to be waited for."""
    state = State(
        id=identity,
        name=plan.name,
        plan=plan.digest,
        profile=plan.profile,
        stable=plan.stable,
        canary=plan.canary,
        since=now,
        began=now,
        pool=first.weights[plan.stable] + first.weights[plan.canary],
        first=first,
        before=first,
        now=first,
        in_place=in_place,
        sizes=sizes,
    )
    way = stages(plan, in_place, sizes)
    state = _changed(state, _settings(plan, state, way[0]), now)
    return state.told("CanaryStarted", f"{plan.name}: {plan.canary} is to replace {plan.stable} in {plan.profile}", now)


def advance(plan: Plan, state: State, seen: Seen, now: float) -> State:
    """Return the next state; the same one where nothing changed."""
    if state.over:
        return state
    stage = stages(plan, state.in_place, state.sizes)[state.stage]
    seen = seen if stage.share else Seen((), seen.pauses, seen.starting)
    counted = _counted(state, seen)
    for verdict in seen.verdicts:
        if verdict.result == "bad" and counted.failures[verdict.name] >= _patience(plan, verdict.name):
            return rolled_back(
                counted, f"{verdict.name} is broken at a share of {stage.share:g} %: {verdict.text}", now
            )
    if seen.starting:
        return _starting(plan, counted, stage, seen.starting, now)
    if not counted.settled:
        # The step's time begins where its replicas serve.
        lost = counted.lost + (now - counted.since if counted.stops else 0)
        counted = counted.model_copy(update={"settled": True, "since": now, "lost": lost})
    return _judged(plan, counted, stage, seen, now)


def _judged(plan: Plan, state: State, stage: Stage, seen: Seen, now: float) -> State:
    enough = now - state.since >= stage.seconds
    open_ones = [verdict for verdict in seen.verdicts if _blocks(verdict, enough)] if stage.judged else []
    if open_ones:
        return _held(plan, state, "; ".join(f"{verdict.name}: {verdict.text}" for verdict in open_ones), now)
    state = _unheld(state, now)
    state = _paused(state, [verdict for verdict in seen.pauses if verdict.result != "good"], now)
    good = not stage.judged or all(verdict.result == "good" for verdict in seen.verdicts)
    return _next(plan, state, now) if enough and good and not state.paused else state


def rolled_back(state: State, why: str, now: float, reason: Reason = "CanaryRolledBack") -> State:
    """Return the state that gives all traffic back to the stable variant, and both applications what they had."""
    weights = {state.stable: state.pool, state.canary: 0.0}
    replicas = dict(state.first.replicas)
    if state.sizes[0]:
        old = next(iter(replicas))
        replicas[old] = _with(replicas[old], state.sizes[0])
    settings = Settings(weights=weights, replicas=replicas)
    return _changed(state, settings, now, phase="rolledBack").told(reason, why, now)


def _with(options: Options, replicas: int) -> Options:
    """Return the options such that Serve goes on with so many replicas, which it then scales within their bounds."""
    if "num_replicas" in options:
        return options
    # With every change of the options Serve begins at initial_replicas, whatever runs.
    most = options.get("max_replicas", replicas)
    return {**options, "initial_replicas": max(options.get("min_replicas", 1), min(replicas, most))}


def pinned(replicas: int, like: Mapping[str, Any]) -> Options:
    """Return the options that give an application so many replicas, of the kind that it has."""
    if "num_replicas" in like:
        return {"num_replicas": replicas}
    return {"min_replicas": replicas, "max_replicas": max(1, replicas), "initial_replicas": replicas}


def _patience(plan: Plan, name: str) -> int:
    return next((gate.failures for gate in plan.gates if gate.title == name), 1)


def _blocks(verdict: Verdict, enough: bool) -> bool:
    """Tell whether a verdict holds the stage: few requests are no news before the stage's time is over."""
    return verdict.result == "unreachable" or (verdict.result == "undecided" and enough)


def _counted(state: State, seen: Seen) -> State:
    found = dict(state.failures)
    for verdict in seen.verdicts:
        if verdict.result == "bad":
            found[verdict.name] = found.get(verdict.name, 0) + 1
        elif verdict.result == "good":
            found.pop(verdict.name, None)
    return state if found == state.failures else state.model_copy(update={"failures": found})


def _starting(plan: Plan, state: State, stage: Stage, what: str, now: float) -> State:
    spent = now - state.since
    if state.settled:
        # What ran before does so no more: the time counts from here, and what it served so far was in vain.
        lost = state.lost + min(spent, stage.seconds)
        state = state.model_copy(update={"settled": False, "since": now, "stops": state.stops + 1, "lost": lost})
        spent = 0
    elif spent >= plan.start_seconds:
        return rolled_back(state, f"not running after {plan.start_seconds} s: {what}", now)
    lost = state.lost + spent
    if not state.stops or lost < plan.start_seconds + stage.seconds:
        return state
    often = (
        f"what runs stopped {state.stops} times within a step of {stage.seconds:g} s, which lost {lost:.0f} s by that"
    )
    return rolled_back(state, f"{often}: {what}", now)


def _held(plan: Plan, state: State, why: str, now: float) -> State:
    if state.held_since is None:
        return state.model_copy(update={"held_since": now}).told("CanaryHeld", f"cannot be judged: {why}", now)
    if now - state.held_since < plan.hold_seconds:
        return state
    return rolled_back(state, f"could not be judged for {plan.hold_seconds} s: {why}", now)


def _unheld(state: State, now: float) -> State:
    if state.held_since is None:
        return state
    return state.model_copy(update={"held_since": None}).told("CanaryResumed", "can be judged again", now)


def _paused(state: State, broken: list[Verdict], now: float) -> State:
    if bool(broken) == state.paused:
        return state
    state = state.model_copy(update={"paused": bool(broken)})
    if not broken:
        return state.told("CanaryResumed", "no condition pauses it any more", now)
    told = "; ".join(f"{verdict.name}: {verdict.text}" for verdict in broken)
    return state.told("CanaryPaused", f"no step begins while this lasts: {told}", now)


def _next(plan: Plan, state: State, now: float) -> State:
    way = stages(plan, state.in_place, state.sizes)
    if state.stage + 1 == len(way):
        settings = Settings(weights={state.stable: 0.0, state.canary: state.pool}, replicas=_final(plan, state))
        done = _changed(state, settings, now, phase="promoted")
        return done.told("CanaryPromoted", f"{state.canary} has all the traffic of {state.profile}", now)
    stage = way[state.stage + 1]
    moved = _changed(state, _settings(plan, state, stage), now, stage=state.stage + 1)
    text = f"{state.canary} gets {stage.share:g} % ({state.stage + 1} of {len(way) - 1})"
    if plan.blue_green and stage.sizes:
        text += f"; replicas: {plan.blue_green.old} {stage.sizes[0]}, {plan.blue_green.new} {stage.sizes[1]}"
    return moved.told("CanaryStep", text, now)


def _final(plan: Plan, state: State) -> dict[str, Options]:
    """Return options that give the new application the old one's bounds, and the old one no replica."""
    names = plan.blue_green
    if names is None:
        return {}
    old, new = state.first.replicas[names.old], state.sizes[1]
    like = state.first.replicas[names.new]
    same = ("num_replicas" in old) == ("num_replicas" in like) and new == state.sizes[0]
    return {names.old: pinned(0, old), names.new: _with(old, new) if same else pinned(new, like)}


def _settings(plan: Plan, state: State, stage: Stage) -> Settings:
    canary = round(state.pool * stage.share / 100, 9)
    weights = {state.stable: round(state.pool - canary, 9), state.canary: canary}
    replicas: dict[str, Options] = {}
    if plan.blue_green and stage.sizes:
        for name, count in zip((plan.blue_green.old, plan.blue_green.new), stage.sizes, strict=True):
            replicas[name] = pinned(count, state.first.replicas[name])
    return Settings(weights=weights, replicas=replicas)


def _changed(state: State, settings: Settings, now: float, **more: Any) -> State:
    update = {"before": state.now, "now": settings, "since": now, "settled": False, "held_since": None}
    fresh = {"failures": {}, "paused": False, "stops": 0, "lost": 0.0}
    return state.model_copy(update={**update, **fresh, **more})
