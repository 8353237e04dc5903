"""``POST /v1/retrieve``: the passages that an answer would rest on, without the answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.answering import confined
from app.api.body import JsonRoute
from app.api.caps import deadline_for, is_own_deadline
from app.api.context import facts_of, gateway
from app.api.fields import RagFields, StrictModel
from app.api.hangup import run_unless_gone, within
from app.api.priorities import resolve_priority
from app.api.replies import json_reply, note_body
from app.api.resolution import Target, resolve_request
from app.api.retrieval import retrieval_query
from app.blank import is_blank
from app.config.gateway import GatewayConfig
from app.errors import InvalidRequest
from app.jobs import ChatJob, Found
from app.messages import Message

router = APIRouter(route_class=JsonRoute, strict_content_type=False, tags=["answers"])


class RetrieveBody(StrictModel):
    """A question to search for."""

    query: str
    """What to look for; not blank."""
    rag: RagFields | None = None
    """Where and how to search, over the profile's defaults."""
    profile: str | None = None
    """The profile whose retrieval and guardrail policy hold."""
    priority: str | None = None
    """The request's priority class, for its deadline."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Deadline of the request."""


@router.post("/v1/retrieve", summary="Search collections")
async def retrieve(body: RetrieveBody, request: Request) -> Response:
    """Search as for an answer, both guardrails included, and return the passages, best first.

    Passages that the guardrail blocks are left out, so there may be fewer than `rag.top_k`.
    """
    config = gateway(request).settings()
    target = resolve_request(request, config, body.profile, None)
    facts = facts_of(request.scope)
    job = confined(_job(body, target, config, facts.request_id), facts.rights)
    facts.priority, facts.own_deadline = job.priority, job.own_deadline
    facts.meter.check_tokens()
    return json_reply(_reply(await run_unless_gone(request.receive, _found(request, job))))


def _job(body: RetrieveBody, target: Target, config: GatewayConfig, request_id: str) -> ChatJob:
    if is_blank(body.query):
        raise InvalidRequest("query is blank: send what to look for.", param="query")
    rag = body.rag or RagFields()
    if rag.enabled is False or rag.return_contexts is not None:
        field = "enabled" if rag.enabled is False else "return_contexts"
        raise InvalidRequest(f"rag.{field} has no meaning here: passages are what is returned.", param=f"rag.{field}")
    question = Message("user", body.query)
    wanted = rag.model_copy(update={"enabled": True})
    priority = resolve_priority(config, body.priority)
    return ChatJob(
        request_id=request_id,
        model=target.model,
        profile=target.profile_name,
        system_prompt="",
        policy=target.profile.policy,
        deadline=deadline_for(body.timeout_seconds, config.limits, priority),
        own_deadline=is_own_deadline(body.timeout_seconds, config.limits, priority),
        messages=(question,),
        retrieval=retrieval_query(wanted, target.profile.retrieval, (question,), config.limits),
        priority=priority.name,
        question_field="query",
    )


async def _found(request: Request, job: ChatJob) -> Found:
    async with within(job.deadline):
        return await gateway(request).port().retrieve(job)


def _reply(found: Found) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [dict(passage) for passage in found.passages],
        "guardrail": [note_body(note) for note in found.guardrail],
        "stages": {name: round(milliseconds, 3) for name, milliseconds in found.stages.items()},
        "flags": dict(found.flags),
    }
