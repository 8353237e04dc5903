"""The guardrail around an application: it judges what is sent, what is fetched, and what a model wrote of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from app.errors import GuardrailBlocked
from app.messages import Direction, JudgeRequest, Verdict
from app.metrics import Metrics
from app.notes import note_verdict
from app.traces import OFF, Traces

_BLOCKED: Mapping[Direction, str] = {
    "input": "The text was blocked by the guardrail; rephrase it.",
    "passage": "The article was blocked by the guardrail: name another one.",
    "output": "The summary was blocked by the guardrail: send another text.",
}


class Judge(Protocol):
    """The way to the guardrail (``app/handles.py: StageCall``)."""

    async def call(self, request: Any, deadline: float) -> Any:
        """Return the verdict on a :class:`JudgeRequest`."""
        ...


class Guard:
    """Judges the texts of one application under the policy in force: all that models read, and what they write."""

    def __init__(self, judge: Judge, metrics: Metrics, policy: Callable[[], str], traces: Traces = OFF) -> None:
        self._judge = judge
        self._metrics = metrics
        self._policy = policy
        self._traces = traces

    async def passed(self, text: str, direction: Direction, deadline: float) -> str:
        """Return the text, with what is to be redacted redacted. Raises :class:`GuardrailBlocked`."""
        request = JudgeRequest(direction, (text,), self._policy())
        with self._traces.stage("guardrail", request) as span:
            verdict: Verdict = await self._judge.call(request, deadline)
            span.found(verdict)
        note_verdict(self._metrics, direction, verdict)
        if verdict.action == "block":
            raise GuardrailBlocked(_BLOCKED[direction], "guardrail", "text" if direction == "input" else None)
        return verdict.texts[0]

    async def released(self, text: str, deadline: float, /) -> str:
        """Return what a model wrote, judged as output: the step between a model and the caller."""
        return await self.passed(text, "output", deadline)
