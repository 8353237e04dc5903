"""The applications beside the pipeline, as RPCs reach them: by a handle, behind the gateway's keys and limits.

Over HTTP each application serves its route by itself, so the gateway's HTTP API has no such routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.body import JsonRoute
from app.api.caps import deadline_for
from app.api.context import limits_of
from app.api.fields import StrictModel
from app.api.hangup import run_unless_gone, within
from app.api.replies import json_reply
from app.neighbours import AskApplication


class Timed(StrictModel):
    """What requests to all applications have."""

    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Deadline of the request."""


class AnalyzeBody(Timed):
    """A text to analyse."""

    text: str
    """The text."""


class ArticlesBody(Timed):
    """An article, in one of three ways; the application refuses none and several."""

    search_term: str | None = None
    """What to search for."""
    url: str | None = None
    """Where to fetch it."""
    text: str | None = None
    """The article itself."""


def router_to(ask: AskApplication) -> APIRouter:
    """Return the routes to applications that ``ask`` reaches."""
    router = APIRouter(route_class=JsonRoute, strict_content_type=False)

    @router.post("/analyze")
    async def analyze(body: AnalyzeBody, request: Request) -> Response:
        return await _reply(ask, "analyze", body, request)

    @router.post("/articles")
    async def articles(body: ArticlesBody, request: Request) -> Response:
        return await _reply(ask, "articles", body, request)

    return router


async def _reply(ask: AskApplication, name: str, body: Timed, request: Request) -> Response:
    deadline = deadline_for(body.timeout_seconds, limits_of(request))
    question = body.model_dump(exclude={"timeout_seconds"}, exclude_none=True)
    return json_reply(await run_unless_gone(request.receive, _answer(ask, name, question, deadline)))


async def _answer(ask: AskApplication, name: str, question: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
    async with within(deadline):
        return await ask(name, question, deadline)
