"""The guardrail in front of an application: what is sent is judged as input, what is fetched as a passage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from app.errors import GuardrailBlocked
from app.messages import JudgeRequest, Verdict
from app.metrics import Metrics
from app.notes import note_verdict


class Judge(Protocol):
    """The way to the guardrail (``app/handles.py: StageCall``)."""

    async def call(self, request: Any, deadline: float) -> Any:
        """Return the verdict on a :class:`JudgeRequest`."""
        ...


class Guard:
    """Judges the texts of one application under the policy in force. No text reaches a model unjudged."""

    def __init__(self, judge: Judge, metrics: Metrics, policy: Callable[[], str]) -> None:
        self._judge = judge
        self._metrics = metrics
        self._policy = policy

    async def passed(self, text: str, direction: Literal["input", "passage"], deadline: float) -> str:
        """Return the text, with what is to be redacted redacted. Raises :class:`GuardrailBlocked`."""
        request = JudgeRequest(direction, (text,), self._policy())
        verdict: Verdict = await self._judge.call(request, deadline)
        note_verdict(self._metrics, direction, verdict)
        if verdict.action == "block":
            told = "The text was blocked by the guardrail; rephrase it."
            if direction == "passage":
                told = "The article was blocked by the guardrail: name another one."
            raise GuardrailBlocked(told, "guardrail", "text" if direction == "input" else None)
        return verdict.texts[0]
