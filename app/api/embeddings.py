"""``POST /v1/embeddings``: the retriever's embedder, behind the input guardrail."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.body import JsonRoute
from app.api.caps import deadline_for, holds_at_most, is_own_deadline
from app.api.context import facts_of, gateway
from app.api.fields import StrictModel, TextList
from app.api.hangup import run_unless_gone, within
from app.api.replies import json_reply
from app.api.resolution import resolve_policy
from app.config.gateway import GatewayConfig
from app.errors import InvalidRequest, ModelNotFound, bounded
from app.jobs import Embedded

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["embeddings"])


class EmbeddingRequest(StrictModel):
    """Texts to embed."""

    input: TextList
    """One text or a list of texts; token lists are not supported."""
    model: str | None = None
    """The embedding model's name."""
    encoding_format: Literal["float", "base64"] | None = None
    """``base64`` is little-endian float32."""
    dimensions: int | None = Field(default=None, ge=1)
    """Only the embedder's own size."""
    user: str | None = None
    """Ignored."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Deadline of the request."""


@router.post("/v1/embeddings", summary="Embed texts")
async def create_embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts as queries. `usage` counts the tokens that the embedding model read, its prefix included.

    A text longer than the model's window is refused with `context_length_exceeded`.
    """
    config = gateway(request).settings()
    policy = resolve_policy(request, config)
    _check(body, config)
    facts = facts_of(request.scope)
    meter = facts.meter
    meter.check_tokens()
    deadline = deadline_for(body.timeout_seconds, config.limits)
    facts.own_deadline = is_own_deadline(body.timeout_seconds, config.limits)
    embedded = await run_unless_gone(request.receive, _embed(request, body.input, policy, deadline))
    meter.charge(embedded.tokens)
    dimension = embedded.vectors.shape[1]
    if body.dimensions not in (None, dimension):
        raise InvalidRequest(f"dimensions must be {dimension}, the embedder's own size.", param="dimensions")
    return json_reply(_reply(embedded, body.encoding_format == "base64", config.embedding_model))


async def _embed(request: Request, texts: list[str], policy: str, deadline: float) -> Embedded:
    async with within(deadline):
        return await gateway(request).port().embed(texts, policy, deadline)


def _check(body: EmbeddingRequest, config: GatewayConfig) -> None:
    if body.model not in (None, config.embedding_model):
        raise ModelNotFound(
            f"{bounded(body.model)} is not the embedding model; it is called {config.embedding_model!r}.", param="model"
        )
    holds_at_most("input", len(body.input), config.limits.max_embedding_inputs, "texts")
    if not body.input or not all(body.input):
        raise InvalidRequest("input holds no text, or an empty one.", param="input")


def _reply(embedded: Embedded, as_base64: bool, model: str) -> dict[str, Any]:
    rows = map(_base64, embedded.vectors) if as_base64 else embedded.vectors.tolist()
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _base64(vector: npt.NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
