"""Which profile, variant and model answer a request: the path's name, then the body's ``profile``, then ``model``."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from app.api.context import facts_of
from app.config.gateway import GatewayConfig, ModelInfo
from app.config.profile import ProfileConfig
from app.config.routing import MARK
from app.errors import InvalidRequest, no_model


@dataclass(frozen=True, slots=True)
class Target:
    """A resolved profile and model, and the variant where there is one.

    ``asked`` is the one name that the caller asked for: a profile, a variant as ``<profile>@<variant>``, or a model.
    Where it is the default profile he may have named nothing. What a key may reach is told by it alone: which variant
    of a profile answers is the operator's choice. ``routable`` tells whether rules and weights may choose: the caller
    named neither a variant nor a model. ``way`` tells how the variant was chosen.
    """

    profile_name: str
    profile: ProfileConfig
    model: str
    info: ModelInfo
    asked: str
    routable: bool
    variant: str = ""
    way: str = ""


def resolve_request(request: Request, config: GatewayConfig, profile: str | None, model: str | None) -> Target:
    """Resolve the names of a request and note profile and variant for metrics.

    Raises Forbidden for names outside of the key's scopes, and what :func:`resolve` raises.
    """
    path, facts = request.path_params.get("profile"), facts_of(request.scope)
    facts.rights.check_names(config, (path, profile), model)
    target = resolve(config, path, profile, model)
    facts.profile, facts.variant = target.profile_name, target.variant
    return target


def resolve_policy(request: Request, config: GatewayConfig) -> str:
    """Return the guardrail policy of a request for embeddings: its path's profile's, or the default one's.

    Of the default profile nothing but the policy is used, so the key's scopes need not hold it. Raises Forbidden.
    """
    path, rights = request.path_params.get("profile"), facts_of(request.scope).rights
    rights.check_model(config.embedding_model)
    if path is not None:
        rights.check_profile(path)
    target = resolve(config, path, None, None)
    facts_of(request.scope).profile = target.profile_name
    return target.profile.policy


def check_profile(config: GatewayConfig, name: str | None) -> None:
    """Raise ModelNotFound when a profile or variant is named that does not exist."""
    if name is not None and _read(config, name) is None:
        raise no_model("profile", name, "profile")


def _read(config: GatewayConfig, name: str) -> tuple[str, str] | None:
    """Return the profile and the variant (or an empty text) that a name stands for."""
    if name in config.profiles:
        return name, ""
    profile, _, variant = name.partition(MARK)
    routing = config.routing.get(profile)
    return (profile, variant) if routing is not None and variant in routing.variants else None


def resolve(config: GatewayConfig, path: str | None, profile: str | None, model: str | None) -> Target:
    """Return what the names mean. Raises ModelNotFound for unknown names and InvalidRequest for a conflict.

    ``model`` may name a profile, a variant or a model. Without a named profile, a model answers under the default one.
    """
    for name in (path, profile):
        check_profile(config, name)
    by_model = None if model is None or _read(config, model) is None else model
    if model is not None and by_model is None and model not in config.models:
        raise no_model("model or profile", model, "model")
    chosen, variant = _agreed(config, [name for name in (path, profile, by_model) if name is not None])
    answering = config.variant(chosen, variant) if variant else config.profiles[chosen]
    engine = answering.model if model is None or by_model is not None else model
    if engine != answering.model and (path or profile):
        raise InvalidRequest(
            f"Profile {chosen!r} answers with model {answering.model!r}, not {engine!r}: leave model out.",
            param="model",
        )
    asks_model = model is not None and by_model is None
    asked = f"{chosen}{MARK}{variant}" if variant else chosen
    return Target(
        profile_name=chosen,
        profile=answering,
        model=engine,
        info=config.models[engine],
        asked=engine if asks_model and not (path or profile) else asked,
        routable=not (variant or asks_model),
        variant=variant,
        way="name" if variant else "",
    )


def _agreed(config: GatewayConfig, named: list[str]) -> tuple[str, str]:
    """Return the profile and the variant that all names agree on; a variant is one of its profile's."""
    read = [found for name in named if (found := _read(config, name)) is not None]
    profiles = list(dict.fromkeys(profile for profile, _ in read))
    variants = list(dict.fromkeys(variant for _, variant in read if variant))
    if len(profiles) > 1:
        raise InvalidRequest(
            f"The request names two profiles, {profiles[0]!r} and {profiles[-1]!r}: name one.", param="profile"
        )
    if len(variants) > 1:
        raise InvalidRequest(
            f"The request names two variants, {variants[0]!r} and {variants[-1]!r}: name one.", param="profile"
        )
    return profiles[0] if profiles else config.default_profile, variants[0] if variants else ""
