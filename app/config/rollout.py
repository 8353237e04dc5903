"""A rollout's plan: from which variant to which, in what steps, judged by what."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.faults import NAME_PATTERN, ROLLOUT_PATTERN

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[int, Field(ge=0, le=7 * 24 * 3600)]
Share = Annotated[float, Field(gt=0, le=100)]
Comparison = Literal["atMost", "atLeast"]
#: Judgements that need no query of one's own.
Gauge = Literal["errors", "latencyP95", "latencyP99", "timeToFirstTokenP95", "grounded", "sloBurn"]

#: What a query may leave open.
PLACEHOLDERS = ("profile", "variant", "window", "selector")
_PLACEHOLDER = re.compile(r"\{\s*(\w+)\s*\}")


class Step(Config):
    """A share of the traffic, and how long it has to go well."""

    share: Share
    """Percent of what both variants get together that goes to the canary."""
    seconds: Seconds
    """How long the step lasts at least."""


class Judgement(Config):
    """A number and a bound: one of the built-in numbers (`gate`) or a PromQL query of one's own."""

    name: str = Field(default="", max_length=64)
    """What it is called in the history; empty: the name of the built-in number."""
    gate: Gauge | None = None
    """A built-in number."""
    query: str | None = Field(default=None, min_length=1, max_length=4096)
    """PromQL that gives one number. `{profile}`, `{variant}`, `{window}` and `{selector}` (the release's matchers) are
    filled in."""
    comparison: Comparison | None = None
    """Which side of the bound is good; unset: `atLeast` for `grounded`, `atMost` for the others."""
    bound: float
    """The bound."""

    @model_validator(mode="after")
    def _is_one_number(self) -> Self:
        if (self.gate is None) == (self.query is None):
            raise ValueError("takes one of gate and query: name a built-in number, or give PromQL")
        if self.query is not None:
            if not self.name:
                raise ValueError("name is missing: a query of your own needs one")
            for found in _PLACEHOLDER.finditer(self.query):
                if found[1] not in PLACEHOLDERS:
                    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                    raise ValueError(f"query names the placeholder {found[0]}; there are {known}")
        return self

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name or str(self.gate)

    @property
    def side(self) -> Comparison:
        """Which side of the bound is good."""
        return self.comparison or ("atLeast" if self.gate == "grounded" else "atMost")


class Gate(Judgement):
    """Has to hold for a step to pass; where it does not, the rollout goes back."""

    relative: bool = False
    """Whether the bound is a multiple of the stable variant's number. Decides nothing at a share of 100."""
    min_requests: Count = 20
    """What the gate's number is taken of (requests, answered ones, judged answers) that the canary must have had within
    the window before the gate decides; where it is relative, the stable variant too."""
    failures: Count = 1
    """How often in a row it has to be broken before the rollout goes back."""


class BlueGreen(Config):
    """Two model applications, of which the new one takes the old one's place."""

    old: str = Field(min_length=1, max_length=64)
    """Serve application of the stable variant's model: `model-<name>`."""
    new: str = Field(min_length=1, max_length=64)
    """Serve application of the canary's model."""
    replicas: Count | None = None
    """Replicas that the new one gets; unset: as many as the old one has."""
    watch_seconds: Seconds = 600
    """How long the new one has to go well with all traffic before the old one stops."""

    @model_validator(mode="after")
    def _are_two(self) -> Self:
        if self.old == self.new:
            raise ValueError("old and new name the same application")
        return self


class Plan(Config):
    """A rollout."""

    name: str = Field(pattern=ROLLOUT_PATTERN)
    """What it is called. A plan that ended is not begun anew unless it has another name, or on `--again`."""
    profile: Name
    """The profile whose variants take turns."""
    stable: Name
    """The variant that serves now."""
    canary: Name
    """The variant that is to serve."""
    steps: list[Step] = Field(min_length=1, max_length=50)
    """Shares of the canary, rising."""
    gates: list[Gate] = Field(min_length=1, max_length=30)
    """What has to hold."""
    pause_while: list[Judgement] = Field(default_factory=list, max_length=30)
    """While one of these is broken, no step begins; nothing is rolled back for it, however long it takes."""
    window_seconds: Annotated[int, Field(ge=5, le=86_400)] = 300
    """The time that gates look back over; never to before the step began."""
    poll_seconds: Annotated[int, Field(ge=1, le=300)] = 15
    """Time between two looks."""
    hold_seconds: Seconds = 900
    """How long a step may be held because Prometheus does not answer or the canary has too few requests; then back."""
    start_seconds: Seconds = 1800
    """How long applications may take to run with the replicas that a step wants; then back. Also what a step may lose
    beyond its own length where they stop running again and again."""
    blue_green: BlueGreen | None = None
    """Two model applications, for `blue-green`."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.stable == self.canary:
            raise ValueError("stable and canary name the same variant")
        shares = [step.share for step in self.steps]
        if any(later <= earlier for earlier, later in itertools.pairwise(shares)):
            raise ValueError("steps: each share must be larger than the one before")
        titles = [judgement.title for judgement in (*self.gates, *self.pause_while)]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"{twice[0]!r} is used twice among gates and pauseWhile: give each its own name")
        return self

    @property
    def digest(self) -> str:
        """A hash of all of it: a runner goes on with the same plan only."""
        whole = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def own_queries(self) -> list[str]:
        """Return the names of judgements that only a Prometheus can tell."""
        judgements: list[Judgement] = [*self.gates, *self.pause_while]
        return [judgement.title for judgement in judgements if judgement.query is not None]


def parse_plan(raw: Any, where: str) -> Plan:
    """Return a plan. Raises ConfigError with a sentence per fault."""
    return Plan.parse(raw, where)
