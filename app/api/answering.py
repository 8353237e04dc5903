"""Handing a job to the pipeline and its answer to the caller, plain or streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from app.api.charging import charged
from app.api.chunks import ChunkWriter, stream_frames
from app.api.context import facts_of, gateway
from app.api.hangup import closing, run_unless_gone
from app.api.replies import Answer, collect, json_reply
from app.api.sse import EventStream
from app.errors import BatonError, Forbidden
from app.jobs import ChatEvent, ChatJob, Finished, Shadow, Started
from app.keys.rights import Rights
from app.messages import Delta

_PROMPT_WORDS = (("these messages", "this prompt"), ("the messages take", "the prompt takes"), ("messages", "prompt"))


async def plain_reply(request: Request, job: ChatJob, body: Callable[[Answer, ChatJob], dict[str, Any]]) -> Response:
    """Answer in one piece; the pipeline stops when the caller hangs up."""
    answer = await run_unless_gone(request.receive, collect(_events(request, job), job))
    return json_reply(body(answer, job))


def streamed_reply(request: Request, job: ChatJob, writer: ChunkWriter, include_usage: bool = False) -> Response:
    """Answer piece by piece; nothing runs before the response is sent."""
    return EventStream(stream_frames(_events(request, job), job, writer, include_usage), job.deadline)


def _events(request: Request, job: ChatJob) -> AsyncIterator[ChatEvent]:
    """Return the pipeline's events for what the key may ask. Raises Forbidden and RateLimitExceeded at once."""
    facts = facts_of(request.scope)
    facts.priority, facts.own_deadline = job.priority, job.own_deadline
    confined_job = confined(job, facts.rights)
    facts.meter.check_tokens()
    events = gateway(request).port().chat(confined_job)
    if job.question_field == "prompt":
        events = _about_prompt(events)
    return charged(events, facts.meter, _tokens_so_far) if facts.meter.counts_tokens else events


async def _about_prompt(events: AsyncIterator[ChatEvent]) -> AsyncIterator[ChatEvent]:
    """Pass events on, and say ``prompt`` in errors about the messages that the gateway made of it."""
    try:
        async with closing(events) as stream:
            async for event in stream:
                yield event
    except BatonError as error:
        if error.param != "messages":
            raise
        message = error.message
        for said, meant in _PROMPT_WORDS:
            message = message.replace(said, meant)
        raise type(error)(message, error.stage, "prompt", error.retry_after_seconds) from None


def confined(job: ChatJob, rights: Rights) -> ChatJob:
    """Return the job, and its shadows, with their search kept to the documents of the key's tenant. Raises Forbidden.

    Every job passes here, whatever route or profile it came from.
    """
    if job.retrieval is not None:
        rights.check_searched(job.retrieval.collections)
        job = replace(job, retrieval=replace(job.retrieval, tenant=rights.tenant))
    return replace(job, shadows=tuple(_confined_shadow(shadow, rights) for shadow in job.shadows))


def _confined_shadow(shadow: Shadow, rights: Rights) -> Shadow:
    """Return the shadow confined; one whose collections the key may not search counts as refused by its variant."""
    try:
        return shadow if shadow.job is None else replace(shadow, job=confined(shadow.job, rights))
    except Forbidden:
        return replace(shadow, job=None)


def _tokens_so_far(before: int, event: ChatEvent) -> int:
    """Return an answer's tokens, prompt included, as far as its events tell them."""
    if isinstance(event, Started):
        return event.prompt_tokens
    if isinstance(event, Delta):
        return before + max(len(event.logprobs), int(bool(event.content)))
    if isinstance(event, Finished):
        return event.usage.prompt_tokens + event.usage.completion_tokens
    return before
