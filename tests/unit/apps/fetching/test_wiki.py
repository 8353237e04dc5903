"""The first hit of a search, from the shipped wiki and from servers that are none."""

import json
import time
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest
from web_site import HOST, Lookups, answer, config, redirect, site

from app.apps.fetching.article import Article
from app.apps.fetching.fetcher import Fetcher
from app.apps.fetching.wiki import Wiki
from app.config.fetching import FetchConfig
from app.deadline import Deadline
from app.errors import InvalidRequest, UpstreamFailed, UrlRefused
from app.testing.mediawiki import FakeMediaWiki

PAGES = {"Sea otter": "The sea otter is a mammal.\nIt floats.", "Beaver": "A beaver is no otter.", "Empty": ""}


async def search(wiki, term):
    with closing(Deadline(time.monotonic() + 10, "fetcher")) as deadline:
        return await wiki.first_hit(term, deadline)


async def test_the_first_hit_comes_with_its_text():
    with FakeMediaWiki(PAGES) as served:
        wiki = Wiki(served.config())
        url = served.page_url("Sea otter")
        assert await search(wiki, " otter ") == Article("Sea otter", url, PAGES["Sea otter"])
        assert (await search(wiki, "beaver OTTER")).title == "Beaver"
        assert served.searches == ["otter", "beaver OTTER"]


async def test_no_hit_and_a_hit_without_a_text_are_none():
    with FakeMediaWiki(PAGES) as served:
        wiki = Wiki(served.config())
        assert await search(wiki, "zebra") is None
        assert await search(wiki, "empty") is None


async def test_a_page_of_the_wiki_can_be_fetched_by_its_url():
    with FakeMediaWiki(PAGES) as served, closing(Deadline(time.monotonic() + 10, "fetcher")) as deadline:
        article = await Fetcher(served.config()).text_of(served.page_url("Sea otter"), deadline)
    assert (article.title, article.text) == ("Sea otter", PAGES["Sea otter"])


@pytest.mark.parametrize("term", ["", "  ", "x" * 301])
async def test_terms_that_no_wiki_takes(term):
    with pytest.raises(InvalidRequest, match="1 to 300 characters"):
        await search(Wiki(FetchConfig()), term)


async def test_a_wiki_on_this_machine_needs_its_network_in_the_list():
    with FakeMediaWiki(PAGES) as served:
        closed = served.config().model_copy(update={"private_networks": ()})
        with pytest.raises(UpstreamFailed, match=r"mediawikiUrl cannot be searched: .* not public"):
            await search(Wiki(closed), "otter")
        assert served.searches == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (answer(b"<html>login</html>"), "no MediaWiki that can be used"),
        (answer(status="404 Not Found"), "no MediaWiki that can be used"),
        (redirect("http://other.example/api.php"), "redirects to a URL that is refused"),
        (answer(b"[1]", "application/json"), "something else than MediaWiki's API"),
        (answer(b"{", "application/json"), "something else than MediaWiki's API"),
        (answer(b'{"query": {"pages": [{"title": "x"}]}}', "application/json"), "install its extension TextExtracts"),
        (answer(b'{"error": {"code": "ratelimited"}}', "application/json"), r"refused the search \(ratelimited\)"),
        (answer(b"", "application/json", status="503 Busy"), "answered 503"),
    ],
)
async def test_a_server_that_is_no_wiki_is_told_as_ours_to_mend(page, words):
    async with site() as served:

        async def any_path(writer):
            writer.write(page)

        wiki = Wiki(config(served, mediawiki_url=f"http://{HOST}:{served.port}/w/api.php"), Lookups())
        served.pages = AnyPath(any_path)
        with pytest.raises(UpstreamFailed, match=words) as failed:
            await search(wiki, "otter")
        assert not isinstance(failed.value, UrlRefused)


class AnyPath(dict):
    def __init__(self, page):
        super().__init__()
        self._page = page

    def __missing__(self, path):
        return self._page


async def test_the_question_is_one_request_that_asks_for_search_text_and_address():
    async with site() as served:
        found = {"query": {"pages": [{"title": "T", "canonicalurl": "https://w/T", "extract": " text "}]}}

        async def page(writer):
            writer.write(answer(json.dumps(found).encode(), "application/json"))

        served.pages = AnyPath(page)
        wiki = Wiki(config(served, mediawiki_url=f"http://{HOST}:{served.port}/w/api.php"), Lookups())
        assert await search(wiki, "a&action=delete ü") == Article("T", "https://w/T", "text")
        (request,) = served.requests
        question = parse_qs(urlsplit(request.split()[1]).query)
        assert question["gsrsearch"] == ["a&action=delete ü"]
        assert (question["action"], question["generator"], question["gsrlimit"]) == (["query"], ["search"], ["1"])
        assert question["prop"] == ["extracts|info"]
