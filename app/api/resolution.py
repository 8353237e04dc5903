"""Which profile and model answer a request: the path's profile, then the body's, then ``model``."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from app.api.context import facts_of
from app.config.gateway import GatewayConfig, ModelInfo, ProfileConfig
from app.errors import InvalidRequest, ModelNotFound, bounded


@dataclass(frozen=True, slots=True)
class Target:
    """A resolved profile and model."""

    profile_name: str
    profile: ProfileConfig
    model: str
    info: ModelInfo

    def variant(self) -> dict[str, str]:
        """Return the names for the reply's ``baton.variant``."""
        return {"profile": self.profile_name, "model": self.model}


def resolve_request(request: Request, config: GatewayConfig, profile: str | None, model: str | None) -> Target:
    """Resolve the names of a request and note the profile for metrics.

    Raises Forbidden for names outside of the key's scopes, and what :func:`resolve` raises.
    """
    path = request.path_params.get("profile")
    facts_of(request.scope).rights.check_names(config, (path, profile), model)
    target = resolve(config, path, profile, model)
    facts_of(request.scope).profile = target.profile_name
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
    """Raise ModelNotFound when a profile is named that does not exist."""
    if name is not None and name not in config.profiles:
        raise ModelNotFound(f"There is no profile {bounded(name)}.", param="profile")


def resolve(config: GatewayConfig, path: str | None, profile: str | None, model: str | None) -> Target:
    """Return what the names mean. Raises ModelNotFound for unknown names and InvalidRequest for a conflict.

    ``model`` may name a profile or a model. Without a named profile, a model answers under the default profile.
    """
    for name in (path, profile):
        check_profile(config, name)
    if model is not None and model not in config.profiles and model not in config.models:
        raise ModelNotFound(f"There is no model or profile {bounded(model)}.", param="model")
    by_model = model if model in config.profiles else None
    named = [name for name in (path, profile, by_model) if name is not None]
    if len(set(named)) > 1:
        raise InvalidRequest(
            f"The request names two profiles, {named[0]!r} and {named[-1]!r}: name one.", param="profile"
        )
    chosen = named[0] if named else config.default_profile
    engine = model if model is not None and by_model is None else config.profiles[chosen].model
    own = config.profiles[chosen].model
    if named and engine != own:
        raise InvalidRequest(
            f"Profile {chosen!r} answers with model {own!r}, not {engine!r}: leave model out.",
            param="model",
        )
    return Target(chosen, config.profiles[chosen], engine, config.models[engine])
