"""Drives a rollout: looks, lets the machine decide, puts what it decided into force, and waits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from app.config.rollout import Plan
from app.errors import ConfigError, StageUnavailable
from app.ops.rollout.machine import Seen, advance, begin, rolled_back, stages
from app.ops.rollout.signals import Signals, conditions, judge
from app.ops.rollout.state import Settings, State
from app.ops.rollout.target import Held, Snapshot, Stale, Target

#: After a change of replicas the status that is read may still be the one from before.
_STATUS_SECONDS = 20.0
#: How long the target may fail to answer before the runner gives up (the rollout stays where it is).
_PATIENCE_SECONDS = 600.0
_RENEW_SECONDS = 15.0
_STALE_SECONDS = 1.0


T = TypeVar("T")
P = ParamSpec("P")


class Clock(Protocol):
    """Time as the runner needs it."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Runner:
    """Runs a plan to its end. All that it knows lies with the target, so another one can go on where it stopped."""

    def __init__(self, plan: Plan, target: Target, signals: Signals, clock: Clock, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._target = target
        self._signals = signals
        self._clock = clock
        self._say = say
        self._announced = 0
        #: Whether a write may have been broken off, by this runner or the one before it.
        self._unsure = True

    def run(self, *, again: bool = False, in_place: bool = False, sizes: tuple[int, int] = (0, 0)) -> State:
        """Run it, or go on with it; return how it ended. ``again``: begin a plan anew that ended.

        Raises ConfigError for a plan that does not fit, :class:`Held` where the rollout cannot go on.
        """
        with self._target.lock():
            self._start(again, in_place, sizes)
            while True:
                state = self._looked()
                if state.over:
                    return state
                self._pause()

    def _looked(self) -> State:
        """Look; what no longer fits the plan is no bad input any more."""
        try:
            return self._look()
        except ConfigError as error:
            raise Held(f"The rollout {self._plan.name} cannot go on: {error}") from None

    def _pause(self) -> None:
        """Wait until the next look, and tell others meanwhile that this runner lives."""
        left = float(self._plan.poll_seconds)
        while left > 0:
            self._clock.sleep(min(left, _RENEW_SECONDS))
            left -= _RENEW_SECONDS
            self._target.renew()

    def _start(self, again: bool, in_place: bool, sizes: tuple[int, int]) -> None:
        snapshot = self._patiently(self._target.read, self._plan)
        state = snapshot.state
        if state and not state.over:
            if state.plan != self._plan.digest:
                raise ConfigError(
                    f"The rollout {state.name} is under way with another plan: go on with that one, or end it with "
                    "`abort`."
                )
            if state.in_place != in_place:
                raise ConfigError(
                    f"The rollout {state.name} was begun {'with' if state.in_place else 'without'} --in-place: go on "
                    "with it in the same way."
                )
            self._say(f"going on with {state.name}, stage {state.stage}")
            self._announced = state.log[-1].number - 1 if state.log else 0
            return
        if state and state.plan == self._plan.digest and not again:
            self._say(f"{state.name} is over; --again begins it anew, as another name in the plan does")
            self._announced = state.log[-1].number - 1 if state.log else 0
            return
        self._check(snapshot.settings)
        identity = uuid.uuid4().hex[:8]
        now = self._clock.now()
        self._write(begin(self._plan, snapshot.settings, now, identity=identity, in_place=in_place, sizes=sizes))

    def _check(self, first: Settings) -> None:
        weights, plan = first.weights, self._plan
        if not weights[plan.stable] + weights[plan.canary]:
            raise ConfigError(f"{plan.stable} and {plan.canary} both have weight 0: give {plan.stable} one first.")
        if not weights[plan.stable]:
            raise ConfigError(f"{plan.stable} has no traffic: {plan.canary} has it all already.")

    def _write(self, state: State) -> None:
        """Write a first state; who else writes at the moment comes first."""
        while True:
            try:
                snapshot = self._patiently(self._target.read, self._plan)
                if not snapshot.settings.equals(state.before):
                    raise Held("Somebody changed the weights just now; nothing was begun. Start again.")
                self._target.write(snapshot, state)
                return
            except Stale:
                self._clock.sleep(_STALE_SECONDS)

    def _look(self) -> State:
        """Read, settle what is open, judge, and write what follows; return the state that is stored then."""
        while True:
            try:
                snapshot = self._patiently(self._target.read, self._plan)
                state = snapshot.state
                if state is None:
                    raise Held("The rollout's record is gone: somebody removed it. The weights stay as they are.")
                self._settle(snapshot, state)
                self._tell(state)
                if state.over:
                    return state
                now = self._clock.now()
                following = advance(self._plan, state, self._seen(state, snapshot, now), now)
                if following == state:
                    return state
                self._patiently(self._target.write, snapshot, following)
                self._tell(following)
                return following
            except Stale:
                self._unsure = True
                self._clock.sleep(_STALE_SECONDS)

    def _settle(self, snapshot: Snapshot, state: State) -> None:
        """Finish a change that was broken off. Raises :class:`Held` where somebody else changed the settings."""
        unsure, self._unsure = self._unsure and not self._target.atomic, False
        if snapshot.settings.equals(state.now):
            return
        if state.over and not (unsure and snapshot.settings.equals(state.before)):
            return  # what was changed since then is nobody's business here
        if not unsure or not snapshot.settings.equals(state.before):
            raise Held(
                f"Somebody else changed what the rollout {state.name} moves: there is {_told(snapshot.settings)}, and "
                f"it had set {_told(state.now)}. Nothing is changed any more. Put that back and run this again to go "
                "on, or end the rollout with `abort`."
            )
        self._patiently(self._target.write, snapshot, state)

    def _seen(self, state: State, snapshot: Snapshot, now: float) -> Seen:
        stage = stages(self._plan, state.in_place, state.sizes)[state.stage]
        early = not state.settled and state.now.replicas != state.before.replicas
        if early and now - state.since < _STATUS_SECONDS:
            return Seen(starting="replicas were just changed")
        starting = "; ".join(f"{name} is {status}" for name, status in snapshot.applications.items() if status)
        verdicts = judge(self._plan, state, self._signals, stage.share, now) if stage.share else []
        return Seen(tuple(verdicts), tuple(conditions(self._plan, state, self._signals, now)), starting)

    def _tell(self, state: State) -> None:
        for entry in state.log:
            if entry.number > self._announced:
                self._announced = entry.number
                self._say(f"{entry.reason}: {entry.text}")
                try:
                    self._target.announce(state, entry)
                except (ConfigError, StageUnavailable) as error:
                    self._say(f"no event was made of it: {error}")

    def _patiently(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask until there is an answer. Raises :class:`Held` when there is none for long."""
        end = self._clock.now() + _PATIENCE_SECONDS
        while True:
            try:
                return ask(*args, **kwargs)
            except StageUnavailable as error:
                if self._clock.now() > end:
                    raise Held(f"The rollout cannot go on: {error} Run this again to go on.") from None
                self._say(f"waiting: {error}")
                self._pause()


def abort(target: Target, plan_of: State, now: float) -> State:
    """Roll back now, whoever runs the rollout; return the state that is stored then.

    What others changed meanwhile is overruled: the stable variant gets all that both have. Raises ConfigError where no
    rollout is under way, StageUnavailable where the target does not answer.
    """
    while True:
        snapshot = target.read(plan_of)
        state = snapshot.state
        if state is None or state.over:
            raise ConfigError("No rollout is under way: there is nothing to abort.")
        ended = rolled_back(state, "aborted by hand", now, "CanaryAborted")
        try:
            target.write(snapshot, ended)
        except Stale:
            continue
        if ended.log:
            target.announce(ended, ended.log[-1])
        return ended


def _told(settings: Settings) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in sorted(settings.weights.items()))
    replicas = "".join(f"; {name} {options}" for name, options in sorted(settings.replicas.items()))
    return f"{weights}{replicas}"
