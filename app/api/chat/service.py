"""From a chat request to a job for the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import Request

from app.answers.json_check import check_schema
from app.api.caps import (
    answer_tokens,
    at_most,
    candidates_for,
    check_stop,
    deadline_for,
    holds_at_most,
    is_own_deadline,
)
from app.api.chat.schema import ChatMessage, ChatRequest
from app.api.priorities import Priority
from app.api.resolution import Target
from app.api.retrieval import retrieval_query
from app.api.routing import asked_in_chat, routed_job
from app.config.gateway import LimitsConfig
from app.config.response_format import openai_json
from app.errors import InvalidRequest
from app.images import check_images
from app.jobs import ChatJob
from app.messages import Message, ToolCall


def answering_job(request: Request, body: ChatRequest, target: Target) -> ChatJob:
    """Return the job of the variant that answers a conversation, with its shadows, in the request's priority class.

    Raises what :func:`build_job` and :func:`app.api.priorities.resolve_priority` raise.
    """
    return routed_job(request, body, target, asked_in_chat, build_job)


def build_job(body: ChatRequest, target: Target, priority: Priority, limits: LimitsConfig, request_id: str) -> ChatJob:
    """Return the job, with everything checked against the limits. Raises InvalidRequest and SchemaRejected."""
    profile, n = target.profile, body.n or 1
    holds_at_most("messages", len(body.messages), limits.max_messages, "messages")
    at_most("top_logprobs", body.top_logprobs, limits.max_top_logprobs)
    check_stop(body.stop, limits)
    max_tokens = answer_tokens(body, body.max_tokens or body.max_completion_tokens, target, limits)
    _check_tools(body, target, limits)
    _check_images(body, target, limits)
    messages = tuple(as_message(turn) for turn in body.messages)
    return ChatJob(
        request_id=request_id,
        model=target.model,
        profile=target.profile_name,
        system_prompt=profile.system_prompt,
        policy=profile.policy,
        deadline=deadline_for(body.timeout_seconds, limits, priority),
        own_deadline=is_own_deadline(body.timeout_seconds, limits, priority),
        messages=messages,
        retrieval=retrieval_query(body.rag, profile.retrieval, messages, limits),
        max_tokens=max_tokens,
        n=n,
        n_candidates=candidates_for(body, n, target, limits),
        sampling=body.sampling(profile.sampling),
        tools=tuple(tool.model_dump(exclude_none=True) for tool in body.tools or ()),
        tool_choice=body.tool_choice,
        response_format=_response_format(body, target, limits),
        logprobs=bool(body.logprobs),
        top_logprobs=body.top_logprobs or 0,
        return_contexts=bool(body.rag and body.rag.return_contexts),
        priority=priority.name,
        engine_priority=priority.engine_priority,
        context_tokens=profile.limits.context_tokens,
        variant=target.variant,
        way=target.way,
    )


def as_message(turn: ChatMessage) -> Message:
    """Return a turn as the stages see it."""
    return Message(
        role="system" if turn.role == "developer" else turn.role,
        content=turn.content or "",
        name=turn.name,
        tool_calls=tuple(
            ToolCall(call.id, call.function.name, call.function.arguments) for call in turn.tool_calls or ()
        ),
        tool_call_id=turn.tool_call_id,
        images=turn.images,
    )


def _check_images(body: ChatRequest, target: Target, limits: LimitsConfig) -> None:
    images = [image for turn in body.messages for image in turn.images]
    if not images:
        return
    if not target.info.images:
        raise InvalidRequest(
            f"Model {target.model!r} reads no images: leave image_url parts out, or name a model whose entry in "
            "GET /v1/models says images: true.",
            param="messages",
        )
    if any(turn.images and turn.role != "user" for turn in body.messages):
        raise InvalidRequest("Images belong into turns of the user.", param="messages")
    check_images(images, limits, "messages")


def _check_tools(body: ChatRequest, target: Target, limits: LimitsConfig) -> None:
    if not body.tools:
        return
    if not target.info.tools:
        raise InvalidRequest(f"Model {target.model!r} does not support tools: leave tools out.", param="tools")
    holds_at_most("tools", len(body.tools), limits.max_tools, "tools")
    for schema in _tool_schemas(body):
        check_schema(schema, limits, "tools")


def _tool_schemas(body: ChatRequest) -> Iterator[Mapping[str, Any]]:
    for tool in body.tools or ():
        if tool.function.parameters is not None:
            yield tool.function.parameters


def _response_format(body: ChatRequest, target: Target, limits: LimitsConfig) -> dict[str, Any] | None:
    chosen = openai_json(target.profile.response_format if body.response_format is None else body.response_format)
    if body.response_format is not None and chosen is not None and "json_schema" in chosen:
        check_schema(chosen["json_schema"]["schema"], limits, "response_format")
    return chosen
