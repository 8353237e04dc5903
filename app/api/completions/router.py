"""``POST /v1/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.answering import plain_reply, streamed_reply
from app.api.body import JsonRoute
from app.api.completions.reply import CompletionChunks, completion_body
from app.api.completions.schema import CompletionRequest
from app.api.completions.service import completing_job
from app.api.context import gateway
from app.api.resolution import resolve_request

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])


@router.post("/v1/completions", summary="Go on from a prompt")
async def create_completion(body: CompletionRequest, request: Request) -> Response:
    """Go on from a bare prompt: both guardrails judge, no template is applied and nothing is retrieved.

    Also reachable as `/{profile}/v1/completions`.
    """
    target = resolve_request(request, gateway(request).settings(), body.profile, body.model)
    job = completing_job(request, body, target)
    if not body.stream:
        return await plain_reply(request, job, completion_body)
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return streamed_reply(request, job, CompletionChunks(job), usage)
