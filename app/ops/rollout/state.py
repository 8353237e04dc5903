"""What a rollout remembers between two looks, and across a crash: everything."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.config.base import Config

Phase = Literal["running", "promoted", "rolledBack"]
Reason = Literal[
    "CanaryStarted",
    "CanaryStep",
    "CanaryHeld",
    "CanaryPaused",
    "CanaryResumed",
    "CanaryPromoted",
    "CanaryRolledBack",
    "CanaryAborted",
]
#: Entries of the history that are kept.
LOG_ENTRIES = 40
_TEXT_CHARS = 600

#: Options of a deployment that say how many replicas it has, under Ray's names.
Options = dict[str, int]


class Settings(Config):
    """The keys that a rollout owns: weights of the two variants and, for blue and green, replicas of applications."""

    weights: dict[str, float]
    """Weight by variant."""
    replicas: dict[str, Options] = Field(default_factory=dict)
    """Options by application, the old one first."""

    def equals(self, other: Settings) -> bool:
        """Tell whether these are the same settings; a number may have been through text."""
        return (
            self.replicas == other.replicas
            and self.weights.keys() == other.weights.keys()
            and all(abs(weight - other.weights[name]) < 1e-6 for name, weight in self.weights.items())
        )


class Entry(Config):
    """A line of the history."""

    number: int
    """Counts the lines of this rollout, from 1."""
    at: float
    """Seconds since the epoch."""
    reason: Reason
    """What happened."""
    text: str
    """The same as a sentence."""


class State(Config):
    """A rollout under way, or ended."""

    id: str
    """Tells it from others."""
    name: str
    """The plan's name."""
    plan: str
    """The plan's hash."""
    profile: str
    """The profile."""
    stable: str
    """The variant that served before."""
    canary: str
    """The variant that is to serve."""
    phase: Phase = "running"
    """Whether it is over, and how."""
    stage: int = 0
    """Which stage of the plan is in force."""
    since: float
    """When it came into force."""
    began: float
    """When the rollout began."""
    pool: float
    """The weight that both variants have together."""
    first: Settings
    """What was in force before the rollout."""
    before: Settings
    """What was in force before the last change."""
    now: Settings
    """What is meant to be in force."""
    in_place: bool = False
    """Whether old replicas stop so that new ones can start."""
    sizes: tuple[int, int] = (0, 0)
    """Replicas of the old and of the new application, where there are two."""
    settled: bool = False
    """Whether all applications run with the replicas that this stage wants."""
    stops: int = 0
    """How often an application stopped running within this stage."""
    lost: float = 0.0
    """Seconds that this stage lost by that."""
    held_since: float | None = None
    """Since when the stage cannot be judged."""
    paused: bool = False
    """Whether one of the plan's conditions keeps the next stage from beginning."""
    failures: dict[str, int] = Field(default_factory=dict)
    """How often in a row a gate was broken."""
    log: tuple[Entry, ...] = ()
    """The history; long ones lose their beginning."""

    @property
    def over(self) -> bool:
        """Whether it ended."""
        return self.phase != "running"

    def told(self, reason: Reason, text: str, now: float) -> State:
        """Return it with one more line of history."""
        number = self.log[-1].number + 1 if self.log else 1
        entry = Entry(number=number, at=now, reason=reason, text=text[:_TEXT_CHARS])
        return self.model_copy(update={"log": (*self.log, entry)[-LOG_ENTRIES:]})
