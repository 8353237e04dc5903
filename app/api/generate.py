"""``POST /generate``: prompt in, text out, through all stages of the default profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, Field

from app.api.answering import plain_reply, streamed_reply
from app.api.body import JsonRoute
from app.api.chat.schema import ChatMessage, ChatRequest
from app.api.chat.service import answering_job
from app.api.context import gateway
from app.api.fields import StrictModel
from app.api.replies import Answer, baton_body
from app.api.resolution import resolve_request
from app.blank import is_blank
from app.jobs import ChatJob, Finished
from app.messages import Delta

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])

_STATUS_BY_REASON = {"length": "truncated", "content_filter": "filtered"}


def _not_blank(prompt: str) -> str:
    if is_blank(prompt):
        raise ValueError("send a question, not a blank text")
    return prompt


class GenerateBody(StrictModel):
    """A question."""

    prompt: Annotated[str, AfterValidator(_not_blank)]
    """The question; not blank."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer in tokens."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 picks the likeliest token each time."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus: smallest share of probability to choose from."""
    stream: bool | None = None
    """Send the answer piece by piece as server-sent events."""


@router.post("/generate", summary="Answer one question")
async def generate(body: GenerateBody, request: Request) -> Response:
    """Answer with `{status, text, tokens, confidence, baton}`.

    `status` is `ok`, `truncated` (the token limit cut the answer) or `filtered` (the guardrail ended it). Streamed:
    events `{status: "running", text}` with pieces of text, one event like the plain reply with an empty `text`, and
    `[DONE]`.
    """
    config = gateway(request).settings()
    target = resolve_request(request, config, None, None)
    question = ChatMessage(role="user", content=body.prompt)
    chat = ChatRequest(messages=[question], **body.model_dump(exclude={"prompt"}, exclude_none=True))
    job = replace(answering_job(request, chat, target), question_field="prompt")
    if not body.stream:
        return await plain_reply(request, job, _body)
    return streamed_reply(request, job, GenerateEvents())


def _body(answer: Answer, job: ChatJob) -> dict[str, Any]:
    choice = answer.choices[0]
    return _outcome(choice.text, choice.finish_reason) | _known_at_end(
        answer.finished, baton_body(answer.finished, job)
    )


def _outcome(text: str, reason: str) -> dict[str, Any]:
    return {"status": _STATUS_BY_REASON.get(reason, "ok"), "text": text}


def _known_at_end(finished: Finished, baton: Mapping[str, Any]) -> dict[str, Any]:
    return {"tokens": finished.usage.completion_tokens, "confidence": baton["confidence"], "baton": baton}


class GenerateEvents:
    """Writes the events of a streamed ``/generate``."""

    def opening(self, n: int) -> Iterator[dict[str, Any]]:
        """Yield nothing: the first event is the first text."""
        yield {"status": "running", "text": ""}

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """Return the event for text; None when there is none."""
        return {"status": "running", "text": delta.content} if delta.content else None

    def finish(self, index: int, reason: str) -> dict[str, Any]:
        """Return how the answer ended."""
        return _outcome("", reason)

    def closing_fields(self, finished: Finished, baton: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is known at the end."""
        return _known_at_end(finished, baton)

    def usage(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return token counts; ``/generate`` has them in its last event already and never asks."""
        return {"usage": usage}
