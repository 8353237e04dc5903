"""``POST /analyze``: language, sentiment and summary of a text."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.applications.application import answer
from app.api.body import JsonRoute
from app.api.context import facts_of
from app.api.fields import StrictModel
from app.api.replies import json_reply
from app.apps.analyze import Analysis, Analyze
from app.blank import is_blank
from app.errors import InvalidRequest

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["applications"])


class AnalyzeRequest(StrictModel):
    """A text to analyse."""

    text: str
    """The text."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Deadline of the request."""


@router.post("/analyze", summary="Analyse a text")
async def analyze(body: AnalyzeRequest, request: Request) -> Response:
    """Tell a text's language, how well it speaks (1 to 5 stars), and what it says in short."""
    check_text(body.text)

    async def run(service: Analyze, deadline: float) -> Analysis:
        return await service.run(body.text, deadline)

    analysis = await answer(request, body.timeout_seconds, run)
    facts_of(request.scope).meter.charge(analysis.tokens)
    return json_reply(_reply(analysis))


def check_text(text: str) -> None:
    """Refuse a text without content."""
    if is_blank(text):
        raise InvalidRequest("text is blank: send something to read.", param="text")


def _reply(analysis: Analysis) -> dict[str, Any]:
    return {
        "original_length": analysis.original_length,
        "language": analysis.language,
        "sentiment": {"label": analysis.sentiment.label, "score": analysis.sentiment.score},
        "summary": analysis.summary,
    }
