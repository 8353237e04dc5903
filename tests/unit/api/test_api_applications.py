"""The routes of the applications over compositions that are told what to answer."""

from unittest.mock import AsyncMock

import httpx
import orjson
import pytest

from app.admission import Admission
from app.api.application import Surroundings
from app.api.applications import articles
from app.api.applications.application import Application, build_application
from app.apps.articles import Digest
from app.config.gateway import LimitsConfig
from app.errors import DeadlineExceeded
from app.keys.file import KeyLimits
from app.keys.meter import Meter
from app.keys.rights import ALL
from app.keys.ring import Grant
from app.metrics import MemoryMetrics

LIMITS = LimitsConfig(max_body_bytes=2048)


class Doorman:
    """Lets everyone in on one key."""

    on = True

    def __init__(self, **limits):
        self.meter = Meter(KeyLimits(**limits))

    def grant(self, secret):
        return Grant("one", ALL, self.meter)


class Articles:
    """Digests everything alike, and notes what was asked for."""

    def __init__(self):
        self.asked = []

    async def of_search(self, search_term, deadline):
        self.asked.append(search_term)
        return Digest(True, "", "Short.", ("Ada",))

    async def of_text(self, text, deadline):
        self.asked.append(text)
        return Digest(True, "", "Short.", ("Ada",), 70)


def api(name, service, router, **around):
    metrics = MemoryMetrics()
    application = Application(name, service, lambda: LIMITS, Admission(name, 4, 4, metrics), metrics)
    return build_application(application, router, Surroundings(**around))


async def ask(app, method, path, **options):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://baton") as client:
        return await client.request(method, path, **options)


@pytest.fixture
def service():
    return Articles()


@pytest.fixture
def site(service):
    return api("articles", service, articles.router)


@pytest.mark.parametrize(("seconds", "outcome"), [(1, "own_deadline"), (LIMITS.timeout_seconds, "timeout")])
async def test_a_deadline_that_the_caller_made_shorter_is_told_from_ours(seconds, outcome):
    service, seen = Articles(), []
    service.of_text = AsyncMock(side_effect=DeadlineExceeded("late"))
    site = api("articles", service, articles.router, observe=seen.append)
    await ask(site, "POST", "/articles", json={"text": "Ada.", "timeout_seconds": seconds})
    assert seen[0].outcome == outcome


async def test_a_search_is_answered(site, service):
    reply = await ask(site, "GET", "/articles?search_term=Ada")
    assert reply.json() == {"success": True, "message": "", "summary": "Short.", "named_entities": ["Ada"]}
    assert service.asked == ["Ada"]


async def test_what_was_read_is_taken_from_the_keys_tokens(service):
    site = api("articles", service, articles.router, keys=Doorman(tokens_per_minute=60))
    key = {"Authorization": "Bearer secret"}
    reply = await ask(site, "POST", "/articles", json={"text": "Ada"}, headers=key)
    assert (reply.status_code, "tokens" in reply.json()) == (200, False)
    reply = await ask(site, "POST", "/articles", json={"text": "Ada"}, headers=key)
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_a_search_with_a_body_is_answered_too(site):
    assert (await ask(site, "GET", "/articles?search_term=Ada", content=b"{}")).status_code == 200


async def test_a_search_with_a_body_over_the_limit_is_told_so(site, service):
    async def endless():
        for _ in range(4):
            yield b"x" * 1024

    reply = await ask(site, "GET", "/articles?search_term=Ada", content=endless())
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "payload_too_large")
    assert service.asked == []


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?search_term=",
        "?search_term=%20",
        "?search_term=%E2%80%8B",
        "?search_term=Ada&timeout_seconds=nan",
        "?search_term=Ada&timeout_seconds=0",
        "?search_term=Ada&search_term=Bob",
    ],
)
async def test_a_search_that_cannot_be_made_is_refused(site, query):
    assert (await ask(site, "GET", f"/articles{query}")).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "http://a.b", "text": "a"},
        {"text": " \n"},
        {"text": "\u200b \u2060\ufeff"},
        {"text": "a", "more": 1},
        [],
    ],
)
async def test_an_article_is_a_url_or_a_text(site, body):
    reply = await ask(site, "POST", "/articles", content=orjson.dumps(body))
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_an_application_describes_itself_and_serves_no_page_of_its_own(site):
    described = (await ask(site, "GET", "/articles/openapi.json")).json()
    assert set(described["paths"]) == {"/articles"}
    assert set(described["paths"]["/articles"]) == {"get", "post"}
    assert "ErrorReply" in described["components"]["schemas"]
    for path in ("/docs", "/redoc", "/openapi.json", "/articles/docs"):
        assert (await ask(site, "GET", path)).status_code == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_caller_who_hangs_up_before_the_body_is_whole_is_nobodys_fault(service, method):
    seen = []
    site = api("articles", service, articles.router, observe=seen.append)
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": "/articles",
        "raw_path": b"/articles",
        "root_path": "",
        "query_string": b"search_term=Ada",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await site(scope, receive, send)
    assert [(each.status, each.outcome) for each in seen] == [(499, "cancelled")]
    assert sent == []
