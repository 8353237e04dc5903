"""``GET /articles?search_term=…`` and ``POST /articles``: summary and named entities of an article."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.api.applications.analyze import check_text
from app.api.applications.application import answer
from app.api.body import JsonRoute
from app.api.context import facts_of
from app.api.fields import StrictModel
from app.api.replies import json_reply
from app.apps.articles import Articles, Digest
from app.blank import is_blank
from app.errors import InvalidRequest

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["applications"])

_URL_CHARS = 2048


class ArticleRequest(StrictModel):
    """An article: where it is, or what it says."""

    url: str | None = Field(default=None, max_length=_URL_CHARS)
    """Address of a page; the hosts that may be asked are a setting."""
    text: str | None = None
    """The article itself."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Deadline of the request."""


@router.get("/articles", summary="Search for an article and digest it")
async def search(
    request: Request,
    search_term: str,
    timeout_seconds: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
) -> Response:
    """Digest the first page that Wikipedia finds for a term."""

    async def run(service: Articles, deadline: float) -> Digest:
        return await service.of_search(search_term, deadline)

    if is_blank(search_term):
        raise InvalidRequest("search_term is blank: say what to look for.", param="search_term")
    return await _reply(request, timeout_seconds, run)


@router.post("/articles", summary="Digest an article")
async def digest(body: ArticleRequest, request: Request) -> Response:
    """Digest the page at a URL, or a text."""

    async def run(service: Articles, deadline: float) -> Digest:
        if body.url is not None:
            return await service.of_url(body.url, deadline)
        return await service.of_text(body.text or "", deadline)

    if (body.url is None) == (body.text is None):
        raise InvalidRequest("An article has either url or text: send one of them.", param="url")
    if body.text is not None:
        check_text(body.text)
    return await _reply(request, body.timeout_seconds, run)


async def _reply(
    request: Request, timeout_seconds: float | None, run: Callable[[Articles, float], Awaitable[Digest]]
) -> Response:
    digest = await answer(request, timeout_seconds, run)
    facts_of(request.scope).meter.charge(digest.tokens)
    return json_reply(
        {
            "success": digest.success,
            "message": digest.message,
            "summary": digest.summary,
            "named_entities": digest.named_entities,
        }
    )
