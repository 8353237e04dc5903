"""``GET /v1/models`` and ``/v1/models/{id}``: models, profiles and the embedding model."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api.context import facts_of, gateway
from app.api.replies import json_reply
from app.api.resolution import check_profile
from app.config.gateway import GatewayConfig, ModelInfo
from app.config.profile import ProfileConfig
from app.config.routing import variant_name
from app.errors import no_model
from app.keys.rights import Rights

router = APIRouter(tags=["models"])


@router.get("/v1/models", summary="List models and profiles")
async def list_models(request: Request) -> Response:
    """List everything that `model` may name; `kind` is `model`, `profile`, `variant` or `embedding`.

    Where keys are on, what the key may use.
    """
    return json_reply({"object": "list", "data": list(_seen(request).values())})


@router.get("/v1/models/{name:path}", summary="Describe one model or profile")
async def get_model(name: str, request: Request) -> Response:
    """Describe one model or profile."""
    entries = _seen(request)
    if name not in entries:
        raise no_model("model or profile", name, "model")
    return json_reply(entries[name])


def _seen(request: Request) -> dict[str, dict[str, Any]]:
    """Return the entries that the key may use. Raises for a path's profile that does not exist, or is not the key's."""
    config, rights = gateway(request).settings(), facts_of(request.scope).rights
    path = request.path_params.get("profile")
    if path is not None:
        rights.check_profile(path)
    check_profile(config, path)
    return {name: entry for name, entry in _entries(config).items() if _sees(rights, entry)}


def _sees(rights: Rights, entry: dict[str, Any]) -> bool:
    return (rights.sees_model if entry["kind"] in ("model", "embedding") else rights.sees_profile)(entry["id"])


def _entries(config: GatewayConfig) -> dict[str, dict[str, Any]]:
    models = {name: _model(name, info) for name, info in config.models.items()}
    profiles = {name: _profile(name, profile, config) for name, profile in config.profiles.items()}
    variants = {
        variant_name(profile, variant): _variant(profile, variant, config)
        for profile, routing in config.routing.items()
        for variant in routing.variants
    }
    embedding = _entry(config.embedding_model, "embedding", "The retriever's embedder, for /v1/embeddings.")
    return models | profiles | variants | {config.embedding_model: embedding}


def _entry(name: str, kind: str, description: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "baton",
        "kind": kind,
        "description": description,
    }


def _model(name: str, info: ModelInfo) -> dict[str, Any]:
    return _entry(name, "model", info.description) | {
        "context_tokens": info.context_tokens,
        "tools": info.tools,
        "images": info.images,
    }


def _profile(name: str, profile: ProfileConfig, config: GatewayConfig) -> dict[str, Any]:
    return _entry(name, "profile", profile.description) | {
        "model": profile.model,
        "retrieval": profile.retrieval.enabled,
        "collections": list(profile.retrieval.collections),
        "default": name == config.default_profile,
    }


def _variant(profile: str, variant: str, config: GatewayConfig) -> dict[str, Any]:
    found = config.variant(profile, variant)
    text = f"Variant {variant} of profile {profile}."
    return _entry(variant_name(profile, variant), "variant", text) | {
        "model": found.model,
        "retrieval": found.retrieval.enabled,
        "collections": list(found.retrieval.collections),
        "profile": profile,
        "weight": config.routing[profile].variants[variant].weight,
    }
