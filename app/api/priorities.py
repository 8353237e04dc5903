"""Which priority class a request belongs to, and the deadline that its class gives it."""

from __future__ import annotations

from dataclasses import dataclass

from app.config.gateway import GatewayConfig
from app.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Priority:
    """A resolved class. ``timeout_seconds`` holds for requests that name no deadline; None: the gateway's own."""

    name: str
    engine_priority: int
    timeout_seconds: float | None


def lowest_priority(config: GatewayConfig) -> Priority:
    """Return the class whose jobs give way to all others."""
    name = max(config.priorities, key=lambda known: config.priorities[known].engine_priority)
    return resolve_priority(config, name)


def resolve_priority(config: GatewayConfig, named: str | None) -> Priority:
    """Return the class of a request. Raises InvalidRequest with the names that there are for one that there is not."""
    name = config.default_priority if named is None else named
    found = config.priorities.get(name)
    if found is None:
        quoted = [repr(known) for known in config.priorities]
        names = " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
        raise InvalidRequest(f"priority: must be one of {names}.", param="priority")
    return Priority(name, found.engine_priority, found.timeout_seconds)
