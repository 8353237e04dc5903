"""The text of a page that a caller names."""

from __future__ import annotations

import asyncio

from app.apps.fetching.article import Article
from app.apps.fetching.connecting import Resolve, look_up
from app.apps.fetching.reading import read_page
from app.apps.fetching.targets import HostRules
from app.apps.fetching.web import Web
from app.blank import is_blank
from app.config.fetching import FetchConfig
from app.deadline import Deadline
from app.errors import PageUnusable


class Fetcher:
    """Fetches the pages that ``config`` allows; ``resolve`` looks hosts up, and is for tests to replace."""

    def __init__(self, config: FetchConfig, resolve: Resolve = look_up) -> None:
        rules = HostRules(config.allowed_hosts, config.allowed_ports)
        self._web = Web(config, rules, config.content_types, resolve)

    async def text_of(self, url: str, deadline: Deadline) -> Article:
        """Return the text of the page at ``url``.

        Raises :class:`app.errors.UrlRefused` for a URL that must not be fetched, :class:`app.errors.PageUnusable` for a
        page that is not there, too large, of another type or without text, :class:`app.errors.UpstreamFailed` and
        :class:`app.errors.UpstreamTimeout` when its server fails, :class:`app.errors.DeadlineExceeded`.
        """
        return await deadline.result_of(self._text_of(url))

    async def _text_of(self, url: str) -> Article:
        page = await self._web.get(url)
        # 2 MB of tags take about two seconds, which others must not wait for.
        title, text = await asyncio.to_thread(read_page, page)
        if is_blank(text):
            raise PageUnusable("The page holds no text.", "fetcher", "url")
        return Article(title, page.url, text)
