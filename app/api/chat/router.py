"""``POST /v1/chat/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.answering import plain_reply, streamed_reply
from app.api.body import JsonRoute
from app.api.chat.reply import ChatChunks, chat_body
from app.api.chat.schema import ChatRequest
from app.api.chat.service import build_job
from app.api.context import facts_of, gateway
from app.api.priorities import resolve_priority
from app.api.resolution import resolve_request
from app.api.routing import asked_in_chat, routed_job

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])


@router.post("/v1/chat/completions", summary="Answer a conversation")
async def create_chat_completion(body: ChatRequest, request: Request) -> Response:
    """Answer through all stages: guardrail, retriever, assembler, generator, postprocessor.

    Also reachable as `/{profile}/v1/chat/completions`. With `stream` the reply is a series of server-sent events.
    """
    config = gateway(request).settings()
    target = resolve_request(request, config, body.profile, body.model)
    priority = resolve_priority(config, body.priority)
    request_id = facts_of(request.scope).request_id
    job = routed_job(
        request,
        target,
        asked_in_chat(request, body, priority.name),
        lambda found: build_job(body, found, priority, config.limits, request_id),
    )
    if not body.stream:
        return await plain_reply(request, job, chat_body)
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return streamed_reply(request, job, ChatChunks(job), usage)
