"""``/articles``: the summary and the named entities of an article, unless it is negative."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from app.apps.analyze import asking
from app.apps.composition import Step, broadcast, conditional, pipeline
from app.apps.guarding import Guard
from app.apps.messages import Entity, Sentiment, SummaryRequest
from app.apps.source import Source
from app.apps.wording import folded_start
from app.config.applications import ArticlesSettings
from app.routing.rules import estimated_tokens


@dataclass(frozen=True, slots=True)
class Digest:
    """The reply, and ``tokens``, about as many as were read of the article.

    ``message`` is empty on success, else it says why there is neither summary nor entities.
    """

    success: bool
    message: str = ""
    summary: str = ""
    named_entities: tuple[str, ...] = ()
    tokens: int = 0


#: The reply where a search finds nothing.
NO_PAGES = Digest(False, "No pages found.")


@dataclass(frozen=True, slots=True)
class Steps:
    """What an article goes through."""

    sentiment: Step[str, Sentiment]
    summary: Step[SummaryRequest, str]
    entities: Step[str, tuple[Entity, ...]]


class Articles:
    """The composition: a gate by ``sentiment``, behind it ``summary`` and ``entities`` side by side."""

    def __init__(self, steps: Steps, source: Source, guard: Guard, settings: Callable[[], ArticlesSettings]) -> None:
        self._steps = steps
        self._source = source
        self._guard = guard
        self._settings = settings

    async def of_search(self, search_term: str, deadline: float) -> Digest:
        """Digest the first page that a search finds. Raises errors of ``app.errors``."""
        text = await self._source.first_hit(search_term, deadline)
        return NO_PAGES if text is None else await self._digest(text, "passage", deadline)

    async def of_url(self, url: str, deadline: float) -> Digest:
        """Digest the page at a URL. Raises errors of ``app.errors``."""
        return await self._digest(await self._source.text_of(url, deadline), "passage", deadline)

    async def of_text(self, text: str, deadline: float) -> Digest:
        """Digest a text. Raises errors of ``app.errors``."""
        return await self._digest(text, "input", deadline)

    async def _digest(self, text: str, direction: Literal["input", "passage"], deadline: float) -> Digest:
        settings, steps = self._settings(), self._steps
        # What is cut off here reaches no model, and need not be judged.
        text = await self._guard.passed(folded_start(text, settings.max_chars), direction, deadline)

        async def digest(made: tuple[str, tuple[Entity, ...]], deadline: float) -> Digest:
            summary, entities = made
            return Digest(True, "", summary, chosen(entities, settings.entity_threshold, settings.max_entities))

        def is_fit(verdict: Sentiment) -> bool:
            return verdict.negative < settings.negative_threshold

        summarised = pipeline(asking(settings.summary), steps.summary, self._guard.released)
        both = pipeline(broadcast(summarised, steps.entities), digest)
        made = await conditional(steps.sentiment, is_fit, both, _turned_away)(text, deadline)
        return replace(made, tokens=estimated_tokens((text,)))


def _turned_away(verdict: Sentiment) -> Digest:
    share = f"{verdict.negative:.2f}"
    return Digest(False, f"The article is negative ({verdict.label}, negative share {share}), so it is not summarised.")


def chosen(entities: Iterable[Entity], threshold: float, most: int) -> tuple[str, ...]:
    """Return the names with a score of at least ``threshold``, each once, the surest first, ``most`` of them."""
    best: dict[str, float] = {}
    for entity in entities:
        if entity.score >= threshold:
            best[entity.text] = max(entity.score, best.get(entity.text, 0.0))
    return tuple(sorted(best, key=lambda name: -best[name])[:most])
