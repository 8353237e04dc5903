"""The HTTP API as a FastAPI application. It reaches the pipeline through a :class:`PipelinePort` and knows no Ray."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from app.api import batches, collections, embeddings, files, generate, models, pages, probes, retrieve
from app.api.chat import router as chat
from app.api.completions import router as completions
from app.api.context import Gateway, Observe, Observed
from app.api.error_handlers import install_error_handlers
from app.api.keys import KeyMiddleware
from app.api.middleware import BodyLimitMiddleware, OriginMiddleware, RequestMiddleware, no_upload
from app.api.query import refuse_doubled
from app.config.gateway import GatewayConfig, LimitsConfig
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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an API is told by whoever runs it; see :func:`build_api`."""

    observe: Observe = _unobserved
    traces: Traces = OFF
    keys: Keys | None = None
    behind_proxy: bool = False
    upload_bytes: Callable[[str], int] = no_upload


def protect(app: FastAPI, limits: Callable[[], LimitsConfig], around: Surroundings) -> None:
    """Give an API what every one of Baton's has: errors in one shape, request ids, keys, origins, limits on bodies.

    Before its routes are added: what they all refuse comes with them.
    """
    app.state.limits = limits
    app.router.dependencies.append(Depends(refuse_doubled))
    install_error_handlers(app)
    app.add_middleware(BodyLimitMiddleware, limits=limits, upload_bytes=around.upload_bytes)
    if around.keys is not None:
        app.add_middleware(KeyMiddleware, keys=around.keys)
    app.add_middleware(OriginMiddleware, limits=limits)
    app.add_middleware(
        RequestMiddleware, observe=around.observe, traces=around.traces, behind_proxy=around.behind_proxy
    )


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
    around = Surroundings(
        observe, traces, keys, behind_proxy, lambda path: files.upload_bytes(path, settings().batches)
    )
    protect(app, lambda: settings().limits, around)
    for router in (chat.router, completions.router, embeddings.router, models.router, retrieve.router):
        app.include_router(router)
        app.include_router(router, prefix="/{profile}", include_in_schema=False)
    for router in (generate.router, collections.router, files.router, batches.router, probes.router, pages.router):
        app.include_router(router)
    return app
