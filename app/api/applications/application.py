"""What the APIs of all applications have in common. It knows no Ray, and nothing of what an application does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.admission import Admission
from app.api.application import ErrorReply, Surroundings, protect
from app.api.caps import deadline_for, is_own_deadline
from app.api.context import facts_of
from app.api.hangup import run_unless_gone, within
from app.config.gateway import LimitsConfig
from app.errors import DeadlineExceeded
from app.metrics import Metrics

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Application:
    """One application as its routes see it. ``service`` does the work; ``limits`` is asked for each request."""

    name: str
    service: Any
    limits: Callable[[], LimitsConfig]
    admission: Admission
    metrics: Metrics


def build_application(application: Application, router: APIRouter, around: Surroundings) -> FastAPI:
    """Return the API of one application, whose router holds its whole paths (``/analyze``).

    Its description is at ``/analyze/openapi.json``.
    """
    app = FastAPI(
        title=f"Baton: {application.name}",
        version="0.1.0",
        openapi_url=f"/{application.name}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorReply, "description": "Refused or failed."}},
    )
    app.state.application = application
    protect(app, application.limits, around)
    app.add_middleware(WholePathMiddleware)
    app.include_router(router)
    return app


class WholePathMiddleware:
    """Routes by the whole path: Serve calls the application's own path a mount point, which leaves nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        await self.app({**scope, "root_path": ""} if scope["type"] == "http" else scope, receive, send)


async def answer(request: Request, timeout_seconds: float | None, work: Callable[[Any, float], Awaitable[T]]) -> T:
    """Return what ``work(service, deadline)`` returns.

    The request is let in by the key's rights and by the application's queue, and ends at its deadline or when the
    caller hangs up. To the rights of keys, an application counts as a profile of its name.
    """
    application: Application = request.app.state.application
    facts = facts_of(request.scope)
    facts.rights.check_profile(application.name)
    facts.meter.check_tokens()
    limits = application.limits()
    deadline = deadline_for(timeout_seconds, limits)
    facts.own_deadline = is_own_deadline(timeout_seconds, limits)
    await request.body()  # a GET may have one too, and what comes after it is a hang-up
    return await run_unless_gone(request.receive, _admitted(application, work, deadline))


async def _admitted(application: Application, work: Callable[[Any, float], Awaitable[T]], deadline: float) -> T:
    began = time.monotonic()
    try:
        async with within(deadline), application.admission.slot():
            return await work(application.service, deadline)
    except DeadlineExceeded as error:
        application.metrics.add("baton_timeouts_total", stage=error.stage)
        raise
    finally:
        milliseconds = (time.monotonic() - began) * 1000
        application.metrics.add("baton_stage_milliseconds", milliseconds, stage=application.name)
