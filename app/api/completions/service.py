"""From a completion request to a job for the pipeline."""

from __future__ import annotations

from fastapi import Request

from app.api.caps import answer_tokens, at_most, candidates_for, check_stop, deadline_for, is_own_deadline
from app.api.completions.schema import CompletionRequest
from app.api.priorities import Priority
from app.api.resolution import Target
from app.api.routing import asked_in_completion, routed_job
from app.config.gateway import LimitsConfig
from app.jobs import ChatJob


def completing_job(request: Request, body: CompletionRequest, target: Target) -> ChatJob:
    """Return the job of the variant that goes on from a prompt, with its shadows, in the request's priority class.

    Raises what :func:`build_job` and :func:`app.api.priorities.resolve_priority` raise.
    """
    return routed_job(request, body, target, asked_in_completion, build_job)


def build_job(
    body: CompletionRequest, target: Target, priority: Priority, limits: LimitsConfig, request_id: str
) -> ChatJob:
    """Return the job, with everything checked against the limits. Raises InvalidRequest."""
    n = body.n or 1
    at_most("logprobs", body.logprobs, limits.max_top_logprobs)
    check_stop(body.stop, limits)
    return ChatJob(
        request_id=request_id,
        model=target.model,
        profile=target.profile_name,
        system_prompt="",
        policy=target.profile.policy,
        deadline=deadline_for(body.timeout_seconds, limits, priority),
        own_deadline=is_own_deadline(body.timeout_seconds, limits, priority),
        prompt=body.prompt,
        max_tokens=answer_tokens(body, body.max_tokens, target, limits),
        n=n,
        n_candidates=candidates_for(body, n, target, limits),
        sampling=body.sampling(target.profile.sampling),
        logprobs=body.logprobs is not None,
        top_logprobs=body.logprobs or 0,
        priority=priority.name,
        engine_priority=priority.engine_priority,
        variant=target.variant,
        way=target.way,
    )
