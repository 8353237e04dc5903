"""From a resolved request to the job of the variant that answers it, with copies for those in its shadow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from fastapi import Request

from app.api.chat.schema import ChatRequest
from app.api.completions.schema import CompletionRequest
from app.api.context import facts_of, gateway
from app.api.priorities import Priority, lowest_priority, resolve_priority
from app.api.resolution import Target
from app.config.gateway import GatewayConfig, LimitsConfig
from app.errors import ClientError
from app.jobs import ChatJob, Shadow
from app.routing.routes import Route, route, shadows
from app.routing.rules import Asked

#: The header that tells sessions apart.
SESSION_ID = "x-session-id"
Build = Callable[[Target], ChatJob]
Body = TypeVar("Body", ChatRequest, CompletionRequest)


def asked_in_chat(request: Request, body: ChatRequest, priority: str) -> Asked:
    """Return what routing looks at in a conversation."""
    question = next((turn.content or "" for turn in reversed(body.messages) if turn.role == "user"), "")
    texts = [turn.content or "" for turn in body.messages]
    json_asked = body.response_format is not None and body.response_format.type != "text"
    return replace(_asked(request, body, priority), texts=texts, question=question, json_asked=json_asked)


def asked_in_completion(request: Request, body: CompletionRequest, priority: str) -> Asked:
    """Return what routing looks at in a bare prompt."""
    return replace(_asked(request, body, priority), texts=[body.prompt], question=body.prompt)


def _asked(request: Request, body: ChatRequest | CompletionRequest, priority: str) -> Asked:
    facts = facts_of(request.scope)
    return Asked(
        request_id=facts.request_id,
        priority=priority,
        key_id=facts.key_id,
        user=body.user or body.safety_identifier or "",
        session=request.headers.get(SESSION_ID, ""),
        busy=gateway(request).port().busy,
    )


def routed_job(
    request: Request,
    body: Body,
    target: Target,
    ask: Callable[[Request, Body, str], Asked],
    build_job: Callable[[Body, Target, Priority, LimitsConfig, str], ChatJob],
) -> ChatJob:
    """Return the job of the variant that rules or weights choose, or of the target where nothing is to be chosen.

    ``ask`` tells what routing looks at, given the priority class. Notes the variant for metrics. Raises what
    ``build_job`` raises for the target that answers, and what :func:`app.api.priorities.resolve_priority` raises.
    """
    config, request_id = gateway(request).settings(), facts_of(request.scope).request_id
    priority = resolve_priority(config, body.priority)
    asked = ask(request, body, priority.name)

    def build(found: Target) -> ChatJob:
        return build_job(body, found, priority, config.limits, request_id)

    found = route(config, target.profile_name, asked) if target.routable else None
    if found is None:
        return build(target)
    facts_of(request.scope).variant = found.variant
    job = build(_routed(config, target, found))
    return replace(job, shadows=tuple(_shadows(config, target, found, asked, build)))


def _routed(config: GatewayConfig, target: Target, found: Route) -> Target:
    model = found.profile.model
    return replace(
        target,
        profile=found.profile,
        model=model,
        info=config.models[model],
        variant=found.variant,
        way=found.way,
    )


def _shadows(config: GatewayConfig, target: Target, answering: Route, asked: Asked, build: Build) -> Iterator[Shadow]:
    lowest = lowest_priority(config)
    for found in shadows(config, target.profile_name, answering.variant, asked):
        try:
            job: ChatJob | None = build(_routed(config, target, found))
        except ClientError:  # its model has no tools, or a smaller window: no reason to refuse what is answered
            job = None
        seconds = 0.0
        if job is not None:
            seconds = job.deadline - time.monotonic()
            job = replace(
                job,
                request_id=f"{job.request_id}.{found.variant}",
                priority=lowest.name,
                engine_priority=lowest.engine_priority,
                return_contexts=False,
            )
        yield Shadow(found.variant, target.profile_name, job, seconds)
