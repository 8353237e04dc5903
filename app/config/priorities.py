"""Priority classes: who goes first where places are few. All of it may change while requests are served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from app.config.base import Config


class PriorityConfig(Config):
    """A priority class, which requests name in the field ``priority``."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Share of the places, against the weights of the other classes that want some. While a higher class is active, a
    class holds no more of a model's places than the next whole number above this share."""
    engine_priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Rank of the class; lower numbers come first. Overload refuses the highest number first, and the engine's
    scheduler gets it (vLLM's ``scheduling_policy: priority``)."""
    max_queued: Annotated[int, Field(ge=0)] | None = None
    """Jobs of the class that may wait for one model, per gateway replica; more are refused with 503. Unset: as many as
    may wait in all (modelCapacity), unless a higher class needs the room."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Deadline of the class's requests that name none, in seconds; unset: limits.timeoutSeconds."""


#: The classes of a configuration that names none.
DEFAULT_PRIORITIES: Mapping[str, PriorityConfig] = {
    "interactive": PriorityConfig(weight=4, engine_priority=0),
    "batch": PriorityConfig(weight=1, engine_priority=10),
}
DEFAULT_PRIORITY = "interactive"
