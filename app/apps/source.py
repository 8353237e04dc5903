"""Where articles come from: a page that a caller names, or the first hit of a search."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from app.apps.fetching.fetcher import Fetcher
from app.apps.fetching.wiki import Wiki
from app.config.fetching import FetchConfig
from app.deadline import Deadline
from app.traces import OFF, Traces

STAGE = "fetcher"


class Source(Protocol):
    """Fetches texts. Raises errors of ``app.errors``, the caller's and the other server's kept apart."""

    async def text_of(self, url: str, deadline: float) -> str:
        """Return the text of a page."""
        ...

    async def first_hit(self, search_term: str, deadline: float) -> str | None:
        """Return the text of the first page that a search finds; None where it finds none."""
        ...


class Fetching:
    """Fetches over HTTP as ``config`` says at the time: its limits and hosts may change between requests."""

    def __init__(self, config: Callable[[], FetchConfig], traces: Traces = OFF) -> None:
        self._config = config
        self._traces = traces
        self._built: tuple[FetchConfig, Fetcher, Wiki] | None = None

    async def text_of(self, url: str, deadline: float) -> str:
        """Return the text of a page that the hosts in force allow."""
        fetcher, _ = self._current()
        with self._traces.stage(STAGE, call=True), closing(Deadline(deadline, STAGE)) as until:
            return (await fetcher.text_of(url, until)).text

    async def first_hit(self, search_term: str, deadline: float) -> str | None:
        """Return the text of the first page that the wiki in force finds."""
        _, wiki = self._current()
        with self._traces.stage(STAGE, call=True), closing(Deadline(deadline, STAGE)) as until:
            article = await wiki.first_hit(search_term, until)
        return None if article is None else article.text

    def _current(self) -> tuple[Fetcher, Wiki]:
        config = self._config()
        if self._built is None or self._built[0] is not config:
            self._built = config, Fetcher(config), Wiki(config)
        return self._built[1], self._built[2]
