"""The pipeline's events, collected for a plain reply, and the parts that all replies share."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from starlette.responses import Response

from app.api.hangup import closing, within
from app.errors import InternalError
from app.jobs import ChatEvent, ChatJob, Finished, GuardrailNote, Started
from app.messages import ChoiceReport, Delta, Usage


def json_reply(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(body), status, headers, "application/json")


def reply_head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """Return the fields that open every OpenAI reply and chunk."""
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


@dataclass(slots=True)
class CollectedChoice:
    """One choice put together from its deltas; ``tool_calls`` is keyed by OpenAI's index of the call."""

    content: list[str] = field(default_factory=list)
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    logprobs: list[Mapping[str, Any]] = field(default_factory=list)
    finish_reason: str = "stop"

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.content)

    def add(self, delta: Delta) -> None:
        """Take in the next piece."""
        self.content.append(delta.content)
        self.logprobs.extend(delta.logprobs)
        for piece in delta.tool_calls:
            self._add_call(piece)
        if delta.finish_reason is not None:
            self.finish_reason = delta.finish_reason

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        blank = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.tool_calls.setdefault(int(piece.get("index", 0)), blank)
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: ``choices[i]`` is the choice with index i."""

    choices: tuple[CollectedChoice, ...]
    finished: Finished


async def collect(events: AsyncIterator[ChatEvent], job: ChatJob) -> Answer:
    """Run the job to its end, within its deadline, and close the events on every way out."""
    choices = tuple(CollectedChoice() for _ in range(job.n))
    finished: Finished | None = None
    async with within(job.deadline), closing(events) as stream:
        async for event in stream:
            if isinstance(event, Delta):
                choices[event.index].add(event)
            elif isinstance(event, Finished):
                finished = event
    return Answer(choices, ended(finished))


def ended(finished: Finished | None) -> Finished:
    """Return the pipeline's last event, which must have come."""
    if finished is None:
        raise InternalError("The pipeline stopped without telling how the answer ended.")
    return finished


async def opened(events: AsyncIterator[ChatEvent]) -> Started:
    """Return the pipeline's first event, which must be ``Started``."""
    first = await anext(events, None)
    if not isinstance(first, Started):
        raise InternalError("The pipeline answered without telling that the engine had started.")
    return first


def usage_body(usage: Usage) -> dict[str, int]:
    """Return token counts in OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def baton_body(finished: Finished, job: ChatJob) -> dict[str, Any]:
    """Return the reply's extension field ``baton``.

    ``citations``, ``confidence``, ``grounding``, ``unsupported_numbers`` and ``json`` at the top are those of the
    choice with index 0; with more than one choice, ``choices`` holds them for each, in order of index. ``variant``
    names profile and model, and where the profile is routed the variant as ``name``. ``stages`` maps a stage to
    milliseconds, ``guardrail`` lists what was flagged, redacted or blocked, ``flags`` are facts such as
    ``without_context``. ``contexts`` is there only when it was asked for.
    """
    reports = sorted(finished.choices, key=lambda report: report.index) or [ChoiceReport(0)]
    body: dict[str, Any] = _report_body(reports[0])
    if job.n > 1:
        body["choices"] = [{"index": report.index, **_report_body(report)} for report in reports]
    body["guardrail"] = [note_body(note) for note in finished.guardrail]
    body["variant"] = {"profile": job.profile, "model": job.model, **({"name": job.variant} if job.variant else {})}
    body["stages"] = {name: round(milliseconds, 3) for name, milliseconds in finished.stages.items()}
    body["flags"] = dict(finished.flags)
    if finished.contexts is not None:
        body["contexts"] = [dict(context) for context in finished.contexts]
    return body


def _report_body(report: ChoiceReport) -> dict[str, Any]:
    return {
        "citations": [asdict(citation) for citation in report.citations],
        "confidence": report.confidence,
        "grounding": report.grounding,
        "unsupported_numbers": [asdict(number) for number in report.unsupported_numbers],
        "json": None if report.json is None else dict(report.json),
    }


def note_body(note: GuardrailNote) -> dict[str, Any]:
    """Return what the guardrail did, as replies show it."""
    return {
        "direction": note.direction,
        "action": note.action,
        "categories": dict(note.categories),
        "failed_open": note.failed_open,
    }
