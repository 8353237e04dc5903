"""The HTTP API as a FastAPI application. It reaches the pipeline through a :class:`PipelinePort` and knows no Ray."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from pydantic import BaseModel

from app.api import collections, embeddings, generate, models, pages, probes, retrieve
from app.api.chat import router as chat
from app.api.completions import router as completions
from app.api.context import Gateway, Observe, Observed
from app.api.error_handlers import install_error_handlers
from app.api.keys import KeyMiddleware
from app.api.middleware import BodyLimitMiddleware, OriginMiddleware, RequestMiddleware
from app.config.gateway import GatewayConfig
from app.jobs import PipelinePort
from app.keys.ring import Keys
from app.traces import OFF, Traces

_DESCRIPTION = (
    "A guarded, retrieval-augmented LLM pipeline behind OpenAI's API. Everything under `/v1` for answers, embeddings "
    "and models is also reachable under `/{profile}/v1`; every profile is also a model name, and so is every "
    "variant, as `profile@variant`. Errors have OpenAI's shape. The header `x-request-id` is echoed."
)


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str
    stage: str


class ErrorReply(BaseModel):
    """The body of every refusal."""

    error: ErrorDetail


def _unobserved(seen: Observed) -> None:
    del seen


def build_api(
    port: Callable[[], PipelinePort],
    settings: Callable[[], GatewayConfig],
    observe: Observe = _unobserved,
    traces: Traces = OFF,
    *,
    keys: Keys | None = None,
    behind_proxy: bool = False,
) -> FastAPI:
    """Return the application.

    ``port`` and ``settings`` are called once per request, so both may change while requests are served.
    ``observe`` is called once at the end of every request; ``traces`` makes its spans. ``keys`` closes the gateway to
    requests without one, when they are on. ``behind_proxy`` leaves the reply's ``x-request-id`` to Serve's proxy. Build
    the application where it runs (a replica).
    """
    app = FastAPI(
        title="Baton",
        version="0.1.0",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorReply, "description": "Refused or failed."}},
    )
    app.state.gateway = Gateway(port, settings)
    install_error_handlers(app)
    app.add_middleware(BodyLimitMiddleware, limits=lambda: settings().limits)
    if keys is not None:
        app.add_middleware(KeyMiddleware, keys=keys)
    app.add_middleware(OriginMiddleware, limits=lambda: settings().limits)
    app.add_middleware(RequestMiddleware, observe=observe, traces=traces, behind_proxy=behind_proxy)
    for router in (chat.router, completions.router, embeddings.router, models.router, retrieve.router):
        app.include_router(router)
        app.include_router(router, prefix="/{profile}", include_in_schema=False)
    for router in (generate.router, collections.router, probes.router, pages.router):
        app.include_router(router)
    return app
