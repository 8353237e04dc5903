"""``POST /v1/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.answering import plain_reply, streamed_reply
from app.api.body import JsonRoute
from app.api.completions.reply import CompletionChunks, completion_body
from app.api.completions.schema import CompletionRequest
from app.api.completions.service import build_job
from app.api.context import facts_of, gateway
from app.api.priorities import resolve_priority
from app.api.resolution import resolve_request
from app.api.routing import asked_in_completion, routed_job

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])


@router.post("/v1/completions", summary="Go on from a prompt")
async def create_completion(body: CompletionRequest, request: Request) -> Response:
    """Go on from a bare prompt: both guardrails judge, no template is applied and nothing is retrieved.

    Also reachable as `/{profile}/v1/completions`.
    """
    config = gateway(request).settings()
    target = resolve_request(request, config, body.profile, body.model)
    priority = resolve_priority(config, body.priority)
    request_id = facts_of(request.scope).request_id
    job = routed_job(
        request,
        target,
        asked_in_completion(request, body, priority.name),
        lambda found: build_job(body, found, priority, config.limits, request_id),
    )
    if not body.stream:
        return await plain_reply(request, job, completion_body)
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return streamed_reply(request, job, CompletionChunks(job), usage)
