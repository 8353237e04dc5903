"""Handing a job to the pipeline and its answer to the caller, plain or streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from app.api.chunks import ChunkWriter, stream_frames
from app.api.context import facts_of, gateway
from app.api.hangup import run_unless_gone
from app.api.replies import Answer, collect, json_reply
from app.api.sse import EventStream
from app.jobs import ChatJob


async def plain_reply(request: Request, job: ChatJob, body: Callable[[Answer, ChatJob], dict[str, Any]]) -> Response:
    """Answer in one piece; the pipeline stops when the caller hangs up."""
    facts_of(request.scope).priority = job.priority
    events = gateway(request).port().chat(job)
    answer = await run_unless_gone(request.receive, collect(events, job))
    return json_reply(body(answer, job))


def streamed_reply(request: Request, job: ChatJob, writer: ChunkWriter, include_usage: bool = False) -> Response:
    """Answer piece by piece; nothing runs before the response is sent."""
    facts_of(request.scope).priority = job.priority
    events = gateway(request).port().chat(job)
    return EventStream(stream_frames(events, job, writer, include_usage), job.deadline)
