"""The guardrail on a stream: the caller keeps the state, the guardrail judges one window at a time."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from app.errors import GuardrailBlocked
from app.messages import Action, Finding, JudgeRequest, Verdict

Judge = Callable[[JudgeRequest], Verdict] | Callable[[JudgeRequest], Awaitable[Verdict]]
_ORDER: tuple[Action, ...] = ("allow", "flag", "redact", "block")


class OutputGate:
    """Lets one stream of text through as far as it is decided; one gate per stream, not for several threads.

    Held back is only what may still turn out to be part of a match: at most the longest term in visible characters
    (``Guardrail.hold_back_chars``), with the blanks, invisible characters and entities among them. However the text
    is cut into pieces, what comes out equals the judgement of the whole. ``findings`` index the whole stream;
    ``released_chars`` counts characters as they came in.
    """

    def __init__(self, judge: Judge, policy: str = "default") -> None:
        self._judge = judge
        self._policy = policy
        self._context = ""
        self._pending = ""
        self.released_chars = 0
        self.findings: list[Finding] = []
        self.action: Action = "allow"
        self.failed_open = False

    @property
    def categories(self) -> dict[str, int]:
        """How many findings there were of each category."""
        counts: dict[str, int] = {}
        for finding in self.findings:
            counts[finding.category] = counts.get(finding.category, 0) + 1
        return counts

    async def push(self, text: str) -> str:
        """Take the next piece; return what may go out now, redacted. Raises GuardrailBlocked."""
        if not text:
            return ""
        self._pending += text
        return await self._advance(final=False)

    async def finish(self) -> str:
        """Return what is left at the end of the stream, redacted. Raises GuardrailBlocked."""
        return await self._advance(final=True) if self._pending else ""

    async def _advance(self, final: bool) -> str:
        request = JudgeRequest("output", (self._pending,), self._policy, self._context, final)
        answer = self._judge(request)
        verdict = await answer if inspect.isawaitable(answer) else answer
        self._note(verdict)
        if verdict.action == "block":
            raise GuardrailBlocked("The answer was stopped by the guardrail.", "guardrail")
        seen = self._context + self._pending
        boundary = len(self._context) + verdict.safe_chars
        self._context = seen[max(0, boundary - verdict.context_chars) : boundary]
        self._pending = seen[boundary:]
        self.released_chars += verdict.safe_chars
        return verdict.texts[0]

    def _note(self, verdict: Verdict) -> None:
        self.action = max(self.action, verdict.action, key=_ORDER.index)
        self.failed_open = self.failed_open or verdict.failed_open
        for finding in verdict.findings:
            self.findings.append(
                Finding(
                    finding.rule,
                    finding.category,
                    finding.action,
                    finding.text_index,
                    finding.start + self.released_chars,
                    finding.end + self.released_chars,
                )
            )
