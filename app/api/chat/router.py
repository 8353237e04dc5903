"""``POST /v1/chat/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.answering import plain_reply, streamed_reply
from app.api.body import JsonRoute
from app.api.chat.reply import ChatChunks, chat_body
from app.api.chat.schema import ChatRequest
from app.api.chat.service import answering_job
from app.api.context import gateway
from app.api.resolution import resolve_request

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])


@router.post("/v1/chat/completions", summary="Answer a conversation")
async def create_chat_completion(body: ChatRequest, request: Request) -> Response:
    """Answer through all stages: guardrail, retriever, assembler, generator, postprocessor.

    Also reachable as `/{profile}/v1/chat/completions`. With `stream` the reply is a series of server-sent events.
    """
    config = gateway(request).settings()
    target = resolve_request(request, config, body.profile, body.model)
    job = answering_job(request, body, target)
    if not body.stream:
        return await plain_reply(request, job, chat_body)
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return streamed_reply(request, job, ChatChunks(job), usage)
