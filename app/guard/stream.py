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

    A match that blocks counts once it is decided where the first one starts. Then ``tail`` holds what may still go
    out: the text before it, redacted. So a blocked stream ends at the same place however it was cut.
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
        self.tail = ""

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
        verdict = await self._verdict(self._pending, final)
        self._note(verdict)
        blocked_at = _decided_block(verdict)
        if blocked_at is not None:
            self.tail = await self._before(blocked_at)
            raise GuardrailBlocked("The answer was stopped by the guardrail.", "guardrail")
        seen = self._context + self._pending
        boundary = len(self._context) + verdict.safe_chars
        self._context = seen[max(0, boundary - verdict.context_chars) : boundary]
        self._pending = seen[boundary:]
        self.released_chars += verdict.safe_chars
        return verdict.texts[0]

    async def _verdict(self, text: str, final: bool) -> Verdict:
        answer = self._judge(JudgeRequest("output", (text,), self._policy, self._context, final))
        return await answer if inspect.isawaitable(answer) else answer

    async def _before(self, blocked_at: int) -> str:
        """Return the pending text before a blocked match, redacted, as if the stream had ended there."""
        text = self._pending[:blocked_at]
        while text:
            verdict = await self._verdict(text, final=True)
            # Cut off, the text may end in what reads as a blocked term of its own.
            again = _decided_block(verdict)
            if again is None:
                return verdict.texts[0]
            text = text[:again]
        return ""

    def _note(self, verdict: Verdict) -> None:
        self.failed_open = self.failed_open or verdict.failed_open
        for finding in verdict.findings:
            if finding.start >= verdict.safe_chars:
                continue  # not decided yet: it comes again with the next piece
            self.action = max(self.action, finding.action, key=_ORDER.index)
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


def _decided_block(verdict: Verdict) -> int | None:
    starts = (found.start for found in verdict.findings if found.action == "block" and found.start < verdict.safe_chars)
    return min(starts, default=None)
