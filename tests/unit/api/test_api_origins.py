"""Web pages of other sites: what their readers' browsers may send here, and what allowed ones can read."""

from __future__ import annotations

import pytest
from gateway_site import SETTINGS, Site

from app.config.gateway import GatewayConfig
from app.errors import ConfigError

EVIL = "http://evil.example"
FRIEND = "https://chat.example.com"
WRITE = "/v1/collections/notes/documents?id=csrf"
FOREIGN = [
    {"Origin": EVIL},
    {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://gateway:3000"},
    {"Origin": "http://other.gateway", "Sec-Fetch-Site": "same-site"},
    {"Origin": "http://gateway", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
    {"Origin": "://"},
    {"Origin": EVIL, "X-Forwarded-Host": "baton.example.com"},
]
OWN = [
    {},
    {"Origin": "http://gateway"},
    {"Origin": "https://Gateway"},
    {"Origin": "http://gateway", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://baton.example.com", "X-Forwarded-Host": "baton.example.com, proxy.internal"},
    {"Origin": "https://baton.example.com", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_pages_of_other_sites_change_nothing(site: Site, method: str, headers: dict[str, str]) -> None:
    reply = await site.client.request(method, WRITE, content=b"text", headers={"Content-Type": "text/plain", **headers})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["type"]) == (403, "cross_origin", "invalid_request_error")
    assert "limits.allowedOrigins" in error["message"]
    assert "access-control-allow-origin" not in reply.headers
    assert "notes" not in site.pipeline.collections


@pytest.mark.parametrize("headers", OWN, ids=str)
async def test_the_gateways_own_pages_and_what_is_no_browser_pass(site: Site, headers: dict[str, str]) -> None:
    reply = await site.client.post(WRITE, content=b"text", headers={"Content-Type": "text/plain", **headers})
    assert reply.status_code == 200


async def test_a_chat_without_a_content_type_is_refused_too(site: Site) -> None:
    raw = b'{"messages": [{"role": "user", "content": "hi"}]}'
    refused = await site.client.post("/v1/chat/completions", content=raw, headers={"Origin": EVIL})
    assert (refused.status_code, site.pipeline.jobs) == (403, [])
    assert site.outcomes == [("unmatched", 403, "")]
    assert (await site.client.post("/v1/chat/completions", content=raw)).status_code == 200


async def test_a_refused_body_is_not_read(site: Site) -> None:
    read = 0

    async def body():
        nonlocal read
        for _ in range(4):
            read += 1
            yield b"x" * 1024

    headers = {"Content-Type": "text/plain", "Origin": EVIL}
    assert (await site.client.post(WRITE, content=body(), headers=headers)).status_code == 403
    assert read == 0


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_reading_is_no_change(site: Site, method: str) -> None:
    reply = await site.client.request(method, "/healthz", headers={"Origin": EVIL, "Sec-Fetch-Site": "cross-site"})
    assert reply.status_code == 200
    assert "access-control-allow-origin" not in reply.headers


async def test_an_allowed_site_may_write_and_read_the_answers(site: Site) -> None:
    site.limit(allowed_origins=(FRIEND,))
    headers = {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
    stored = await site.client.post(WRITE, content=b"text", headers=headers)
    faulty = await site.client.post("/v1/chat/completions", json={}, headers={"Origin": FRIEND})
    assert (stored.status_code, faulty.status_code) == (200, 400)
    for reply in (stored, faulty):
        assert reply.headers["access-control-allow-origin"] == FRIEND
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert "Origin" in reply.headers["vary"]
        assert "access-control-allow-credentials" not in reply.headers
    other = await site.client.post(WRITE, content=b"text", headers=headers | {"Origin": FRIEND + ".evil.example"})
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)


async def test_an_allowed_site_can_read_faults_of_ours_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.limit(allowed_origins=(FRIEND,))
    monkeypatch.setattr(site.pipeline, "list_collections", lambda: 1 / 0)
    broken = await site.client.get("/v1/collections", headers={"Origin": FRIEND})
    headers = {"Origin": FRIEND, "Content-Length": "many"}
    faulty = await site.client.post("/v1/chat/completions", headers=headers)
    assert [reply.json()["error"]["code"] for reply in (broken, faulty)] == ["internal_error", "invalid_request"]
    assert {reply.headers["access-control-allow-origin"] for reply in (broken, faulty)} == {FRIEND}


async def test_browsers_are_told_beforehand_what_they_may_send(site: Site) -> None:
    asked = {
        "Origin": FRIEND,
        "Access-Control-Request-Method": "DELETE",
        "Access-Control-Request-Headers": "authorization, content-type, x-request-id",
        "Access-Control-Request-Private-Network": "true",
    }
    refused = await site.client.options(WRITE, headers=asked)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (405, False)
    site.limit(allowed_origins=(FRIEND,))
    granted = await site.client.options(WRITE, headers=asked)
    assert (granted.status_code, granted.headers["access-control-allow-origin"]) == (200, FRIEND)
    assert "DELETE" in granted.headers["access-control-allow-methods"]
    assert "authorization" in granted.headers["access-control-allow-headers"]
    assert granted.headers["access-control-allow-private-network"] == "true"


HOSTS = ("localhost", "baton.example.com")


@pytest.mark.parametrize(
    "host", ["evil.example:8000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("forwarded", [{}, {"X-Forwarded-Host": "localhost"}])
async def test_a_name_that_another_site_leads_here_changes_nothing(
    site: Site, method: str, host: str, forwarded: dict[str, str]
) -> None:
    site.limit(allowed_hosts=HOSTS)
    headers = {"Content-Type": "text/plain", "Host": host, "Origin": f"http://{host}", **forwarded}
    reply = await site.client.request(method, WRITE, content=b"text", headers=headers)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (403, "cross_origin")
    assert host.partition(":")[0] in error["message"]
    assert "limits.allowedHosts" in error["message"]
    assert "notes" not in site.pipeline.collections


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.:8000",
        "baton.example.com",
        "127.0.0.1:8000",
        "10.1.2.3",
        "[::1]:8000",
        "[::1]",
    ],
)
async def test_the_gateways_own_names_and_addresses_pass(site: Site, host: str) -> None:
    site.limit(allowed_hosts=HOSTS)
    headers = {"Content-Type": "text/plain", "Host": host, "Origin": f"http://{host}"}
    assert (await site.client.post(WRITE, content=b"text", headers=headers)).status_code == 200


async def test_hosts_bind_browsers_alone_and_only_where_they_are_named(site: Site) -> None:
    headers = {"Content-Type": "text/plain", "Host": "evil.example"}
    page = headers | {"Origin": "http://evil.example"}
    assert (await site.client.post(WRITE, content=b"text", headers=page)).status_code == 200
    site.limit(allowed_hosts=HOSTS, allowed_origins=(FRIEND,))
    assert (await site.client.post(WRITE, content=b"text", headers=headers)).status_code == 200
    assert (await site.client.get("/healthz", headers=page)).status_code == 200
    friend = headers | {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"}
    assert (await site.client.post(WRITE, content=b"text", headers=friend)).status_code == 200


@pytest.mark.parametrize("host", ["*", "localhost:8000", "http://localhost", "Localhost", "", 5])
def test_a_host_is_a_name_without_a_port(host: object) -> None:
    with pytest.raises(ConfigError, match=r"limits\.allowedHosts\[0\]: must be"):
        GatewayConfig.parse(SETTINGS | {"limits": {"allowedHosts": [host]}}, "gateway")


@pytest.mark.parametrize(
    "origin", ["*", "chat.example.com", "https://chat.example.com/", "https://Chat.example.com", 5]
)
def test_an_origin_is_spelled_as_browsers_spell_it(origin: object) -> None:
    with pytest.raises(ConfigError, match=r"limits\.allowedOrigins\[0\]: must be"):
        GatewayConfig.parse(SETTINGS | {"limits": {"allowedOrigins": [origin]}}, "gateway")
    allowed = ["http://localhost:3000", "https://chat.example.com", "http://[::1]:8080"]
    found = GatewayConfig.parse(SETTINGS | {"limits": {"allowedOrigins": allowed}}, "gateway")
    assert list(found.limits.allowed_origins) == allowed
