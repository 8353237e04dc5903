"""With keys on: what is open, what a key's scopes let through, whose documents it reaches, and its limits."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from gateway_site import SETTINGS, Site
from openai import AsyncOpenAI, AuthenticationError, PermissionDeniedError, RateLimitError

from app.api.application import build_api
from app.config.gateway import GatewayConfig
from app.keys.file import KeysFile, hash_of
from app.keys.ring import Keys, Loaded
from app.metrics import MemoryMetrics

ALL = {"models": ["*"], "profiles": ["*"], "collections": ["*"], "ingest": True, "drop": True}
ENTRIES: dict[str, dict[str, Any]] = {
    "all": {"scopes": ALL},
    "none": {},
    "docs": {"scopes": {"profiles": ["docs"], "collections": ["probe"]}},
    "model": {"scopes": {"models": ["smol", "embedder"], "collections": ["pro*"]}},
    "blind": {"scopes": {"profiles": ["*"], "collections": ["other"]}},
    "reader": {"scopes": {"collections": ["*"]}},
    "red": {"scopes": ALL, "tenant": "red"},
    "blue": {"scopes": ALL, "tenant": "blue"},
    "one": {"scopes": ALL, "limits": {"concurrency": 1}},
    "few": {"scopes": ALL, "limits": {"tokensPerMinute": 60}},
}
CHAT = "/v1/chat/completions"
TURN = {"messages": [{"role": "user", "content": "hi"}]}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(key)}"}


def secret(key: str) -> str:
    return f"bt-secret-of-{key}"


@pytest.fixture
def closed(site: Site) -> Site:
    """The site with keys on; its client brings the key of `all` unless a request names another."""
    keys = Keys(MemoryMetrics())
    raw = [{"id": name, "secrets": [{"hash": hash_of(secret(name))}], **more} for name, more in ENTRIES.items()]
    keys._take(Loaded(None, KeysFile.model_validate({"keys": raw})))
    site.app = build_api(lambda: site.pipeline, lambda: site.config, site.observed.append, keys=keys)
    transport = httpx.ASGITransport(site.app, raise_app_exceptions=False)
    site.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
    return site


def refusal(reply: httpx.Response) -> tuple[int, str]:
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code", "stage"}
    return reply.status_code, error["code"]


# --- what is open -----------------------------------------------------------------------------------------------------


async def test_every_route_but_health_and_the_page_asks_for_a_key(closed: Site) -> None:
    routes = [route for route in closed.app.routes if isinstance(route, APIRoute)]
    seen = {(route.path, method) for route in routes for method in route.methods}
    assert len(seen) > 15
    for path, method in seen:
        reply = await closed.client.request(method, path.replace("{name:path}", "x").replace("{path:path}", "app.js"))
        if path in ("/healthz", "/readyz", "/", "/static/{path:path}"):
            assert reply.status_code == 200, (method, path)
        else:
            assert reply.status_code == 401, (method, path)
    assert closed.pipeline.jobs == []


DEAF = {"guardrail": "ready", "smol": "ready", "tooled": "the application model-tooled is not deployed"}


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer bt-secret-of-al"}, {"Authorization": "Basic Ynk6bWU="}]
)
@pytest.mark.parametrize("readiness", [dict.fromkeys(DEAF, "ready"), DEAF])
async def test_probes_are_answered_without_a_key_and_told_no_names(
    closed: Site, header: dict[str, str], readiness: dict[str, str]
) -> None:
    closed.pipeline.rescript(readiness=readiness)
    reply = await closed.client.get("/readyz", headers=header)
    head = await closed.client.head("/readyz", headers=header)
    ready = readiness is not DEAF
    assert (reply.status_code, head.status_code) == ((200, 200) if ready else (503, 503))
    assert reply.json()["status"] == ("ready" if ready else "not ready")
    assert ready or (refusal(reply) == (503, "stage_unavailable") and reply.headers["retry-after"] == "2")
    assert not any(name in reply.text for name in (*DEAF, "model-")), reply.text


async def test_a_key_is_told_the_names_of_what_it_may_use(closed: Site) -> None:
    closed.pipeline.rescript(readiness=DEAF)
    whole = (await closed.client.get("/readyz", headers=bearer("all"))).json()
    assert whole["missing"] == {"tooled": DEAF["tooled"]}
    part = await closed.client.get("/readyz", headers=bearer("model"))
    assert (part.status_code, part.json()["missing"]) == (503, {})
    assert "tooled" not in part.text
    closed.pipeline.rescript(readiness=dict.fromkeys(DEAF, "ready"))
    ready = await closed.client.get("/readyz", headers=bearer("model"))
    assert ready.json() == {"status": "ready", "stages": {"guardrail": "ready", "smol": "ready"}}


@pytest.mark.parametrize(
    "path", ["/openapi.json", "/docs", "/nothing", "/healthz/", "/static", "/healthz%2f..%2fv1/models"]
)
async def test_paths_beside_the_open_ones_are_closed(closed: Site, path: str) -> None:
    assert refusal(await closed.client.get(path)) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic Ynk6bWU=", "Bearer bt-secret-of-al", "bt-secret-of-all", "Bearer " + "x" * 9000, "Bearer ä"],
)
async def test_what_is_no_known_key_is_told_so_in_openais_shape(closed: Site, header: str) -> None:
    reply = await closed.client.post(CHAT, json=TURN, headers={"Authorization": header.encode()})
    assert refusal(reply) == (401, "invalid_api_key")
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert reply.headers["www-authenticate"] == "Bearer"
    assert (header[7:] or "?") not in reply.text
    assert closed.observed[-1].outcome == "refused"


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER  {} "])
async def test_a_key_opens_all_that_it_may_use(closed: Site, header: str) -> None:
    headers = {"Authorization": header.format(secret("all"))}
    for path in (CHAT, "/docs/v1/chat/completions"):
        assert (await closed.client.post(path, json=TURN, headers=headers)).status_code == 200
    for path in ("/v1/models", "/v1/collections", "/openapi.json", "/docs"):
        assert (await closed.client.get(path, headers=headers)).status_code == 200


async def test_what_begins_like_an_open_path_leads_nowhere_else(closed: Site) -> None:
    reply = await closed.client.get("/static/%2e%2e/v1/models")
    assert reply.status_code == 404


async def test_a_large_body_without_a_key_is_not_read(closed: Site) -> None:
    async def body() -> Any:
        raise AssertionError("read")
        yield b""

    assert (await closed.client.post(CHAT, content=body())).status_code == 401


async def test_a_browser_may_ask_beforehand_and_read_the_refusal(closed: Site) -> None:
    closed.limit(allowed_origins=("https://chat.example.com",))
    asked = {"Origin": "https://chat.example.com", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    preflight = await closed.client.options(CHAT, headers=asked)
    assert preflight.status_code == 200
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    refused = await closed.client.post(CHAT, json=TURN, headers={"Origin": "https://chat.example.com"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://chat.example.com")
    foreign = await closed.client.options(CHAT, headers=asked | {"Origin": "http://evil.example"})
    assert foreign.status_code == 401


async def test_the_log_names_the_key_and_never_its_secret(closed: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "ray.serve.baton.gateway"):
        await closed.client.post(CHAT, json=TURN, headers=bearer("all"))
        await closed.client.post(CHAT, json=TURN, headers={"Authorization": "Bearer bt-wrong"})
    assert [record.key for record in caplog.records if hasattr(record, "key")] == ["all", ""]
    assert "secret-of" not in caplog.text
    assert "bt-wrong" not in caplog.text


# --- scopes -----------------------------------------------------------------------------------------------------------

MAY = [
    ("docs", CHAT, {"profile": "docs"}),
    ("docs", CHAT, {"model": "docs"}),
    ("docs", "/docs/v1/chat/completions", {}),
    ("docs", "/docs/v1/chat/completions", {"model": "smol"}),
    ("model", CHAT, {"model": "smol"}),
    ("model", CHAT, {"model": "smol", "rag": {"collection": "probe"}}),
    ("blind", CHAT, {"profile": "docs", "rag": {"enabled": False}}),
    ("blind", CHAT, {}),
]
MAY_NOT = [
    ("none", CHAT, {}),
    ("none", CHAT, {"model": "smol"}),
    ("none", CHAT, {"model": "not-there"}),
    ("none", CHAT, {"profile": "not-there"}),
    ("none", "/not-there/v1/chat/completions", {}),
    ("docs", CHAT, {}),
    ("docs", CHAT, {"model": "smol"}),
    ("docs", CHAT, {"model": "default"}),
    ("docs", CHAT, {"profile": "docs", "rag": {"collection": "empty"}}),
    ("docs", CHAT, {"profile": "docs", "rag": {"collections": ["probe", "not-there"]}}),
    ("model", CHAT, {"model": "tooled"}),
    ("model", CHAT, {"model": "docs"}),
    ("model", CHAT, {"model": "smol", "rag": {"collection": "empty"}}),
    ("model", "/docs/v1/chat/completions", {"model": "smol"}),
    ("blind", CHAT, {"profile": "docs"}),
    ("blind", CHAT, {"profile": "docs", "stream": True}),
]


@pytest.mark.parametrize(("key", "path", "body"), MAY, ids=str)
async def test_names_within_the_scopes_answer(closed: Site, key: str, path: str, body: dict[str, Any]) -> None:
    assert (await closed.client.post(path, json=TURN | body, headers=bearer(key))).status_code == 200


@pytest.mark.parametrize(("key", "path", "body"), MAY_NOT, ids=str)
async def test_names_outside_are_refused_whether_they_exist_or_not(
    closed: Site, key: str, path: str, body: dict[str, Any]
) -> None:
    reply = await closed.client.post(path, json=TURN | body, headers=bearer(key))
    assert refusal(reply) == (403, "permission_denied")
    assert closed.pipeline.jobs == []


async def test_other_answering_routes_are_held_to_the_scopes_too(closed: Site) -> None:
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/generate", {"prompt": "a"})):
        assert refusal(await closed.client.post(path, json=body, headers=bearer("docs"))) == (403, "permission_denied")
    embeddings = {"input": ["a"]}
    for key, status in (("docs", 403), ("model", 200), ("all", 200)):
        assert (await closed.client.post("/v1/embeddings", json=embeddings, headers=bearer(key))).status_code == status
    reply = await closed.client.post("/docs/v1/embeddings", json=embeddings, headers=bearer("model"))
    assert refusal(reply) == (403, "permission_denied")


@pytest.mark.parametrize(
    ("key", "names"),
    [("none", []), ("docs", ["docs"]), ("model", ["smol", "embedder"])],
)
async def test_models_are_listed_as_far_as_the_scopes_go(closed: Site, key: str, names: list[str]) -> None:
    listed = await closed.client.get("/v1/models", headers=bearer(key))
    assert [entry["id"] for entry in listed.json()["data"]] == names
    for name in names:
        assert (await closed.client.get(f"/v1/models/{name}", headers=bearer(key))).status_code == 200
    unseen = await closed.client.get("/v1/models/tooled", headers=bearer(key))
    assert unseen.status_code == 404
    told = "There is no model or profile 'tooled': GET /v1/models lists those there are."
    assert unseen.json()["error"]["message"] == told


async def test_collections_are_held_to_the_scopes(closed: Site) -> None:
    listed = await closed.client.get("/v1/collections", headers=bearer("model"))
    assert [entry["name"] for entry in listed.json()["data"]] == ["probe"]
    for name in ("empty", "not-there"):
        reply = await closed.client.get(f"/v1/collections/{name}", headers=bearer("model"))
        assert refusal(reply) == (403, "permission_denied")
    assert (await closed.client.get("/v1/collections/probe", headers=bearer("model"))).status_code == 200


async def test_documents_change_with_ingest_and_collections_go_with_drop_only(closed: Site) -> None:
    documents = "/v1/collections/probe/documents"
    body = {"documents": [{"id": "n", "text": "new"}]}
    for reply in (
        await closed.client.post(documents, json=body, headers=bearer("reader")),
        await closed.client.delete(f"{documents}?id=z", headers=bearer("reader")),
        await closed.client.delete("/v1/collections/probe", headers=bearer("reader")),
    ):
        assert refusal(reply) == (403, "permission_denied")
    assert set(closed.pipeline.collections["probe"].documents) == {"z"}
    assert (await closed.client.post(documents, json=body, headers=bearer("all"))).status_code == 200
    assert (await closed.client.delete("/v1/collections/probe", headers=bearer("all"))).status_code == 200


# --- tenants ----------------------------------------------------------------------------------------------------------


async def fill(site: Site, key: str, *ids: str) -> httpx.Response:
    body = {"documents": [{"id": name, "text": f"{name} of {key}"} for name in ids]}
    return await site.client.post("/v1/collections/shared/documents", json=body, headers=bearer(key))


async def test_tenants_share_a_collection_and_reach_their_own_documents_only(closed: Site) -> None:
    for key in ("red", "blue"):
        assert (await fill(closed, key, "a", "b")).json()["documents"] == 2
    for key in ("red", "blue"):
        listed = await closed.client.get("/v1/collections/shared", headers=bearer(key))
        assert listed.json()["documents"] == 2
        body = TURN | {"rag": {"collection": "shared", "return_contexts": True, "filter": {}}}
        answer = await closed.client.post(CHAT, json=body, headers=bearer(key))
        assert closed.job.retrieval is not None
        assert closed.job.retrieval.tenant == key
        assert {context["text"] for context in answer.json()["baton"]["contexts"]} == {f"a of {key}", f"b of {key}"}
    assert (await closed.client.get("/v1/collections/shared", headers=bearer("all"))).json()["documents"] == 4
    gone = await closed.client.delete("/v1/collections/shared/documents?id=a&id=tenant:blue/b", headers=bearer("red"))
    assert gone.json()["deleted"] == 1
    assert (await closed.client.delete("/v1/collections/shared", headers=bearer("red"))).status_code == 200
    assert set(closed.pipeline.collections["shared"].documents) == {"tenant:blue/a", "tenant:blue/b"}


async def test_shadows_search_what_the_key_may_search(closed: Site) -> None:
    shadow = {"weight": 0, "retrieval": {"enabled": True, "collections": ["probe"]}}
    routing = {"default": {"variants": {"a": {"weight": 1}, "b": shadow}, "shadow": [{"variant": "b", "share": 1}]}}
    closed.config = GatewayConfig.parse(deepcopy(SETTINGS) | {"routing": routing}, "settings")
    await closed.client.post(CHAT, json=TURN, headers=bearer("red"))
    (copied,) = closed.job.shadows
    assert copied.job is not None
    assert copied.job.retrieval is not None
    assert copied.job.retrieval.tenant == "red"
    assert (await closed.client.post(CHAT, json=TURN, headers=bearer("blind"))).status_code == 200
    assert [(found.variant, found.job) for found in closed.job.shadows] == [("b", None)]


async def test_collections_without_documents_of_its_own_are_none_of_a_tenants(closed: Site) -> None:
    await fill(closed, "red", "a")
    listed = await closed.client.get("/v1/collections", headers=bearer("blue"))
    assert listed.json()["data"] == []
    assert refusal(await closed.client.get("/v1/collections/shared", headers=bearer("blue"))) == (
        404,
        "collection_not_found",
    )


async def test_nobody_sets_or_filters_on_the_reserved_field(closed: Site) -> None:
    for key in ("red", "all"):
        for flt in ({"baton.tenant": "blue"}, {"or": [{}, {"not": {"baton.tenant": {"exists": True}}}]}):
            body = TURN | {"rag": {"collection": "probe", "filter": flt}}
            reply = await closed.client.post(CHAT, json=body, headers=bearer(key))
            assert refusal(reply) == (400, "invalid_request")
            assert "reserved" in reply.json()["error"]["message"]


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_more_requests_at_once_than_a_key_may_are_refused(closed: Site) -> None:
    closed.pipeline.rescript(delay_seconds=0.3)
    first = asyncio.create_task(closed.client.post(CHAT, json=TURN, headers=bearer("one")))
    await asyncio.sleep(0.1)
    refused = await closed.client.post(CHAT, json=TURN, headers=bearer("one"))
    assert refusal(refused) == (429, "rate_limit_exceeded")
    assert (refused.json()["error"]["type"], refused.headers["retry-after"]) == ("rate_limit_error", "1")
    assert (await closed.client.post(CHAT, json=TURN, headers=bearer("all"))).status_code == 200
    assert (await first).status_code == 200
    assert (await closed.client.post(CHAT, json=TURN, headers=bearer("one"))).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answers_tokens_are_charged_and_the_next_question_waits(closed: Site, stream: bool) -> None:
    long = {"messages": [{"role": "user", "content": "word " * 100}], "stream": stream}
    first = await closed.client.post(CHAT, json=long, headers=bearer("few"))
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-tokens"] == "60"
    second = await closed.client.post(CHAT, json=TURN, headers=bearer("few"))
    assert refusal(second) == (429, "rate_limit_exceeded")
    assert int(second.headers["retry-after"]) >= 40
    assert second.headers["x-ratelimit-remaining-tokens"] == "0"
    assert (await closed.client.get("/v1/models", headers=bearer("few"))).status_code == 200
    embed = await closed.client.post("/v1/embeddings", json={"input": ["a"]}, headers=bearer("few"))
    assert refusal(embed) == (429, "rate_limit_exceeded")


async def test_embeddings_are_charged(closed: Site) -> None:
    texts = {"input": ["x" * 100]}
    assert (await closed.client.post("/v1/embeddings", json=texts, headers=bearer("few"))).status_code == 200
    assert (await closed.client.post("/v1/embeddings", json=texts, headers=bearer("few"))).status_code == 429


async def test_an_answer_that_breaks_off_is_charged_as_far_as_it_came(closed: Site) -> None:
    closed.pipeline.rescript(fail_after=RuntimeError("broken"), fail_after_words=2)
    long = {"messages": [{"role": "user", "content": "word " * 100}], "stream": True}
    assert (await closed.client.post(CHAT, json=long, headers=bearer("few"))).status_code == 200
    assert (await closed.client.post(CHAT, json=TURN, headers=bearer("few"))).status_code == 429


async def test_a_refused_question_costs_nothing(closed: Site) -> None:
    for _ in range(100):
        assert (await closed.client.post(CHAT, json={}, headers=bearer("few"))).status_code == 400
    assert (await closed.client.post(CHAT, json=TURN, headers=bearer("few"))).status_code == 200


async def test_openais_client_meets_its_own_errors(closed: Site) -> None:
    def client(key: str) -> AsyncOpenAI:
        return AsyncOpenAI(api_key=key, base_url="http://gateway/v1", http_client=closed.client, max_retries=0)

    turns: Any = TURN["messages"]
    with pytest.raises(AuthenticationError):
        await client("bt-wrong").models.list()
    with pytest.raises(PermissionDeniedError):
        await client(secret("docs")).chat.completions.create(model="smol", messages=turns)
    long: Any = [{"role": "user", "content": "word " * 100}]
    await client(secret("few")).chat.completions.create(model="smol", messages=long)
    with pytest.raises(RateLimitError):
        await client(secret("few")).chat.completions.create(model="smol", messages=turns)
