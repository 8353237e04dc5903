"""The engine loop's own HTTP surface: ``POST …/generate`` and ``GET …/stats``. It knows no Ray."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response

from app.api.application import Surroundings, protect
from app.api.body import JsonRoute
from app.api.caps import at_most, check_stop, deadline_for, holds_at_most, is_own_deadline
from app.api.charging import charged
from app.api.chat.service import as_message
from app.api.context import Observe, Observed, facts_of
from app.api.hangup import run_unless_gone, within
from app.api.replies import json_reply, usage_body
from app.api.sse import DONE, EventStream, frame
from app.apps.engine_loop.prompts import Passage
from app.apps.engine_loop.schema import LoopBody
from app.apps.engine_loop.service import Began, End, LoopEvent, LoopJob, LoopService, Piece
from app.config.engine_loop import EngineLoopSettings
from app.errors import InternalError, InvalidRequest
from app.keys.ring import Keys
from app.traces import OFF, Traces

router = APIRouter(route_class=JsonRoute, strict_content_type=False)
_PREFIX = "/engine-loop"


@dataclass(frozen=True, slots=True)
class ServedLoop:
    """What the routes may reach. ``settings`` is called once per request, since they may change live."""

    model: str
    context_tokens: int
    service: LoopService
    settings: Callable[[], EngineLoopSettings]


def build_loop_api(
    around: ServedLoop, observe: Observe, keys: Keys, traces: Traces = OFF, *, behind_proxy: bool = False
) -> FastAPI:
    """Return the application, with the middleware of the gateway: ids, origins, keys, limits on bodies."""
    app = FastAPI(title="Baton's engine loop", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.loop = around

    def observed(seen: Observed) -> None:
        observe(replace(seen, route=_PREFIX + seen.route if seen.route.startswith("/") else seen.route))

    protect(app, lambda: around.settings().limits, Surroundings(observed, traces, keys, behind_proxy))
    app.include_router(router)
    return app


@router.post("/generate", summary="Answer from the engine that the loop drives")
async def generate(body: LoopBody, request: Request) -> Response:
    """Answer with `{text, finish_reason, usage, baton}`.

    Streamed: events `{text}` with pieces, one event like the plain reply with an empty `text`, and `[DONE]`.
    """
    around: ServedLoop = request.app.state.loop
    facts = facts_of(request.scope)
    facts.rights.check_model(around.model)
    job = _job(body, around, facts.rights.tenant)
    facts.own_deadline = is_own_deadline(body.timeout_seconds, around.settings().limits)
    facts.meter.check_tokens()
    events = charged(around.service.answer(job), facts.meter, tokens_so_far)
    if body.stream:
        return EventStream(_frames(events), job.deadline)
    return json_reply(await run_unless_gone(request.receive, _whole(events, job.deadline)))


@router.get("/stats", summary="What the loop does")
async def stats(request: Request) -> Response:
    """Return requests at work, the engine's unfinished ones, and what hooks and splicing counted in this replica."""
    around: ServedLoop = request.app.state.loop
    facts_of(request.scope).rights.check_model(around.model)
    return json_reply(around.service.report())


def _job(body: LoopBody, around: ServedLoop, tenant: str) -> LoopJob:
    settings = around.settings()
    limits = settings.limits
    turns = body.turns()
    holds_at_most("messages", len(turns), limits.max_messages, "messages")
    holds_at_most("passages", len(body.passages), limits.max_top_k, "passages")
    check_stop(body.stop, limits)
    longest = min(limits.max_tokens, around.context_tokens)
    at_most("max_tokens", body.max_tokens, longest)
    at_most("min_tokens", body.min_tokens, body.max_tokens or min(longest, settings.sampling.max_tokens or longest))
    if any(turn.tool_calls or turn.role == "tool" for turn in turns):
        raise InvalidRequest("Tool turns are not taken here: ask /v1/chat/completions.", param="messages")
    if any(turn.images for turn in turns):
        raise InvalidRequest("Images are not taken here: ask /v1/chat/completions.", param="messages")
    return LoopJob(
        id=uuid.uuid4().hex,
        messages=tuple(as_message(turn) for turn in turns),
        system_prompt=settings.system_prompt,
        policy=settings.policy,
        deadline=deadline_for(body.timeout_seconds, limits),
        passages=tuple(Passage(found.text, found.source) for found in body.passages),
        max_tokens=body.max_tokens,
        sampling=body.sampling(settings.sampling),
        way=body.input,
        tenant=tenant,
    )


def tokens_so_far(before: int, event: LoopEvent) -> int:
    """Return an answer's tokens, prompt included, as far as its events tell them; a piece is a token or more."""
    if isinstance(event, Began):
        return event.prompt_tokens
    if isinstance(event, Piece):
        return before + 1
    return event.usage.prompt_tokens + event.usage.completion_tokens


async def _frames(events: AsyncGenerator[LoopEvent, None]) -> AsyncIterator[bytes]:
    async with aclosing(events) as stream:
        async for event in stream:
            # Nothing goes out for `Began`: the engine may still refuse, and a 200 cannot be taken back.
            if isinstance(event, Piece):
                yield frame({"text": event.text})
            elif isinstance(event, End):
                yield frame(_reply("", event))
    yield DONE


async def _whole(events: AsyncGenerator[LoopEvent, None], deadline: float) -> dict[str, Any]:
    pieces, end = [], None
    async with within(deadline), aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, Piece):
                pieces.append(event.text)
            elif isinstance(event, End):
                end = event
    if end is None:
        raise InternalError("The engine loop stopped without telling how the answer ended.")
    return _reply("".join(pieces), end)


def _reply(text: str, end: End) -> dict[str, Any]:
    baton: dict[str, Any] = {"cached": end.cached}
    if end.handoff is not None:
        handoff = asdict(end.handoff)
        baton["handoff"] = {"bytes": handoff.pop("nbytes"), **handoff}
    return {"text": text, "finish_reason": end.finish_reason, "usage": usage_body(end.usage), "baton": baton}
