"""``/analyze``: what language a text is in, how well it speaks, and what it says in short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.apps.composition import Step, broadcast, conditional, pipeline, unchanged
from app.apps.guarding import Guard
from app.apps.messages import Prepared, PreprocessRequest, Sentiment, SummaryRequest
from app.apps.wording import has_words
from app.config.applications import AnalyzeSettings, SummaryLengths


@dataclass(frozen=True, slots=True)
class Analysis:
    """What came of a text. ``original_length`` is in characters, ``tokens`` is what was read of it."""

    original_length: int
    language: str
    sentiment: Sentiment
    summary: str
    tokens: int


class Analyze:
    """The composition: ``preprocess``, then ``sentiment`` and ``summary`` side by side on what it hands on."""

    def __init__(
        self,
        preprocess: Step[PreprocessRequest, Prepared],
        sentiment: Step[str, Sentiment],
        summary: Step[SummaryRequest, str],
        guard: Guard,
        settings: Callable[[], AnalyzeSettings],
    ) -> None:
        self._preprocess = preprocess
        self._sentiment = sentiment
        self._summary = summary
        self._guard = guard
        self._settings = settings

    async def run(self, text: str, deadline: float) -> Analysis:
        """Analyse one text that the guardrail lets pass. Raises errors of ``app.errors``."""
        settings, length = self._settings(), len(text)
        text = await self._guard.passed(text, "input", deadline)
        judged = pipeline(_text_of, self._sentiment)
        flow = pipeline(self._preprocess, broadcast(unchanged, judged, self._summarised(text, settings)))
        prepared, sentiment, summary = await flow(PreprocessRequest(text, settings.max_input_tokens), deadline)
        return Analysis(length, prepared.language, sentiment, summary, prepared.tokens)

    def _summarised(self, text: str, settings: AnalyzeSettings) -> Step[Prepared, str]:
        """Return the branch that summarises; a text that is short already comes back as it is."""

        async def is_long(prepared: Prepared, deadline: float) -> bool:
            return has_words(text, settings.min_summary_words)  # of the whole text: a cut one may be short

        summarise = pipeline(_text_of, asking(settings.summary), self._summary, self._guard.released)
        return conditional(is_long, bool, summarise, lambda verdict: text)


async def _text_of(prepared: Prepared, deadline: float) -> str:
    return prepared.text


def asking(lengths: SummaryLengths) -> Step[str, SummaryRequest]:
    """Return the step that asks for a summary of a text within these lengths."""

    async def ask(text: str, deadline: float) -> SummaryRequest:
        return SummaryRequest(text, lengths.min_tokens, lengths.max_tokens)

    return ask
