"""The first page that a MediaWiki finds for a search term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson

from app.apps.fetching.article import Article
from app.apps.fetching.connecting import Resolve, look_up
from app.apps.fetching.targets import HostRules
from app.apps.fetching.web import Web
from app.blank import is_blank
from app.config.fetching import FetchConfig
from app.deadline import Deadline
from app.errors import ClientError, InvalidRequest, UpstreamFailed

#: What Wikipedia's search takes.
_MAX_CHARS = 300
_STAGE = "fetcher"
#: One request for both: a search whose only hit comes with its text and address.
_QUESTION: Mapping[str, str] = {
    "action": "query",
    "format": "json",
    "formatversion": "2",
    "generator": "search",
    "gsrlimit": "1",
    "gsrnamespace": "0",
    "redirects": "1",
    "prop": "extracts|info",
    "explaintext": "1",
    "exsectionformat": "plain",
    "inprop": "url",
}


class Wiki:
    """Searches the MediaWiki that ``config`` names; ``resolve`` looks hosts up, and is for tests to replace."""

    def __init__(self, config: FetchConfig, resolve: Resolve = look_up) -> None:
        url = httpx.URL(config.mediawiki_url)
        host = url.raw_host.decode("ascii").removesuffix(".")
        port = url.port or (443 if url.scheme == "https" else 80)
        self._url = config.mediawiki_url
        # Its own host as the whole list: a redirect to another one is refused.
        self._web = Web(config, HostRules((host,), (port,)), ("application/json",), resolve)

    async def first_hit(self, search_term: str, deadline: Deadline) -> Article | None:
        """Return the first page found for a term of 1 to 300 characters, None when there is none with a text.

        Raises :class:`app.errors.InvalidRequest` for another term, :class:`app.errors.UpstreamFailed` and
        :class:`app.errors.UpstreamTimeout` when the wiki fails, :class:`app.errors.DeadlineExceeded`.
        """
        term = search_term.strip()
        if is_blank(term) or len(term) > _MAX_CHARS:
            raise InvalidRequest(f"search_term must be 1 to {_MAX_CHARS} characters.", _STAGE, "search_term")
        return await deadline.result_of(self._first_hit(term))

    async def _first_hit(self, term: str) -> Article | None:
        question = urlencode({**_QUESTION, "gsrsearch": term})
        try:
            page = await self._web.get(f"{self._url}?{question}")
        except ClientError as error:
            # Whoever searches named no URL: the one in the configuration is at fault.
            raise _failed(f"it is no MediaWiki that can be used. {error.message}") from None
        try:
            return _article(orjson.loads(page.body))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _failed("it answered something else than MediaWiki's API does.") from None


def _article(answer: Any) -> Article | None:
    if error := answer.get("error"):
        raise _failed(f"it refused the search ({str(error['code'])[:80]}).")
    pages = answer.get("query", {}).get("pages", [])
    if not pages:
        return None
    page = pages[0]
    if "extract" not in page:
        raise _failed("it has no texts of pages: install its extension TextExtracts.")
    text = str(page["extract"]).strip()
    return Article(str(page["title"]), str(page["canonicalurl"]), text) if not is_blank(text) else None


def _failed(reason: str) -> UpstreamFailed:
    return UpstreamFailed(f"The wiki at mediawikiUrl cannot be searched: {reason}", _STAGE)
