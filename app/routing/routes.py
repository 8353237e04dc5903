"""From a profile to the variant that answers a request, and to the variants that answer it in the shadow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app.config.gateway import GatewayConfig
from app.config.profile import ProfileConfig
from app.config.routing import RoutingConfig, variant_name
from app.routing.choice import STICKY_CHARS, chosen, sampled
from app.routing.rules import Asked, matching

#: How a variant came to answer: by the caller's naming it, by a rule, by the weights, or in the shadow.
Way = Literal["name", "rule", "weight", "shadow"]


@dataclass(frozen=True, slots=True)
class Route:
    """What answers: a variant's name (that of a model where no variant is meant), and what it answers under."""

    variant: str
    way: Way
    profile: ProfileConfig


def route(config: GatewayConfig, profile: str, asked: Asked) -> Route | None:
    """Return what answers a request that named only the profile; None where the profile is not routed."""
    routing, base = config.routing.get(profile), config.profiles[profile]
    if routing is None:
        return None
    rule = matching(routing.rules, asked, base.model)
    if rule is not None and rule.variant is not None:
        return Route(rule.variant, "rule", config.variant(profile, rule.variant))
    if rule is not None and rule.model is not None:
        return Route(rule.model, "rule", base.model_copy(update={"model": rule.model}))
    if not routing.variants:
        return Route(base.model, "weight", base)
    weights = {name: found.weight for name, found in routing.variants.items()}
    name = chosen(profile, _sticky_key(routing, asked), weights)
    return Route(name, "weight", config.variant(profile, name))


def shadows(config: GatewayConfig, profile: str, answering: str, asked: Asked) -> Iterator[Route]:
    """Yield the variants that get a copy of a routed request, besides the one that answers it."""
    for shadow in config.routing[profile].shadow:
        salt = f"shadow {variant_name(profile, shadow.variant)}"
        if shadow.variant != answering and sampled(salt, asked.request_id, shadow.share):
            yield Route(shadow.variant, "shadow", config.variant(profile, shadow.variant))


def _sticky_key(routing: RoutingConfig, asked: Asked) -> str:
    if routing.sticky == "request":
        return asked.request_id
    named = asked.user if routing.sticky == "user" else asked.session
    return named[:STICKY_CHARS] or asked.request_id
