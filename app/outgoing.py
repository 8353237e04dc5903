"""One answer on its way out: every piece passes the output guardrail before the caller sees it.

Text and the arguments of each tool call are judged as streams of their own. Token log-probabilities spell the text, so
they wait until the text that they belong to was released, and stop for good once something was redacted.
A blocked answer ends where the blocked match starts, with finish reason ``content_filter``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import GuardrailBlocked
from app.guard.stream import OutputGate
from app.messages import Choice, Delta, JudgeRequest, Verdict

Judge = Callable[[JudgeRequest], Awaitable[Verdict]]
BLOCKED = "content_filter"


@dataclass
class OutgoingChoice:
    """The state of one choice: what came from the engine (``pieces``), what went out (``released``), how it ended."""

    index: int
    judge: Judge
    policy: str
    text: str = ""
    finish_reason: str | None = None
    token_logprobs: list[float] = field(default_factory=list)
    gates: list[OutputGate] = field(default_factory=list)
    pieces: int = 0
    released: list[Delta] = field(default_factory=list)
    _tools: dict[int, OutputGate] = field(default_factory=dict)
    _held: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    _received_chars: int = 0

    def __post_init__(self) -> None:
        self._gate = self._new_gate()

    def _new_gate(self) -> OutputGate:
        gate = OutputGate(self.judge, self.policy)
        self.gates.append(gate)
        return gate

    async def push(self, delta: Delta) -> Delta | None:
        """Take a piece from the engine; return what may go out now, or None when everything is held back."""
        if self.finish_reason is not None:
            return None
        self.pieces += 1
        self._note_logprobs(delta)
        self._received_chars += len(delta.content)
        released = ""
        tool_calls: list[Mapping[str, Any]] = []
        finish = delta.finish_reason
        try:
            released = await self._gate.push(delta.content) if delta.content else ""
            tool_calls = await self._push_tools(delta)
            if finish is not None:
                released += await self._gate.finish()
                tool_calls += [
                    {"index": index, "function": {"arguments": rest}}
                    for index, gate in self._tools.items()
                    if (rest := await gate.finish())
                ]
        except GuardrailBlocked:
            released += self._gate.tail
            finish = BLOCKED
        return self._outgoing(delta, released, tool_calls, finish)

    async def _push_tools(self, delta: Delta) -> list[Mapping[str, Any]]:
        outgoing: list[Mapping[str, Any]] = []
        for call in delta.tool_calls:
            index = int(call.get("index", 0))
            gate = self._tools.setdefault(index, self._new_gate()) if index not in self._tools else self._tools[index]
            function = dict(call.get("function") or {})
            if function.get("arguments"):
                function["arguments"] = await gate.push(function["arguments"])
            if call.get("id") or function.get("name") or function.get("arguments"):
                outgoing.append({**call, "function": function})
        return outgoing

    def _outgoing(
        self, delta: Delta, released: str, tool_calls: list[Mapping[str, Any]], finish: str | None
    ) -> Delta | None:
        self.text += released
        self.finish_reason = finish
        logprobs = self._released_logprobs()
        if not (released or tool_calls or logprobs or finish):
            return None
        outgoing = Delta(delta.index, released, tuple(tool_calls), logprobs, finish)
        self.released.append(outgoing)
        return outgoing

    def _note_logprobs(self, delta: Delta) -> None:
        start = self._received_chars
        for entry in delta.logprobs:
            self.token_logprobs.append(float(entry.get("logprob") or 0.0))
            start += len(str(entry.get("token", "")))
            self._held.append((start, entry))

    def _released_logprobs(self) -> tuple[Mapping[str, Any], ...]:
        if self.finish_reason == BLOCKED or any(gate.action == "redact" for gate in self.gates):
            self._held.clear()
            return ()
        through = self._gate.released_chars
        ready = [entry for end, entry in self._held if end <= through or self.finish_reason is not None]
        del self._held[: len(ready)]
        return tuple(ready)

    def choice(self) -> Choice:
        """Return the finished answer for the postprocessor: the text as the caller got it."""
        return Choice(
            index=self.index,
            text=self.text,
            finish_reason=self.finish_reason or "stop",
            token_logprobs=tuple(self.token_logprobs),
            has_tool_calls=bool(self._tools),
        )
