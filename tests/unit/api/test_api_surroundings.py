"""Probes, pages, request ids, routing errors, the description of the API, and that it can be built in a replica."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path

import pytest
from gateway_site import Site

import app.api
from app.api.application import build_api

WEB = Path(app.api.__file__).parents[1] / "web"


async def test_the_probes(site: Site) -> None:
    assert (await site.client.get("/healthz")).json() == {"status": "ok"}
    ready = await site.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    site.pipeline.rescript(readiness={"guardrail": "ready", "retriever": "its store cannot be opened"})
    missing = await site.client.get("/readyz")
    assert (missing.status_code, missing.headers["retry-after"]) == (503, "2")
    assert missing.json()["missing"] == {"retriever": "its store cannot be opened"}
    assert "retriever" in missing.json()["error"]["message"]
    assert (await site.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("readiness", [{"guardrail": "ready"}, {"guardrail": "its terms cannot be read"}])
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_head_probes_are_get_without_a_body(site: Site, path: str, readiness: dict[str, str]) -> None:
    site.pipeline.rescript(readiness=readiness)
    full, head = await site.client.get(path), await site.client.head(path)
    assert (head.status_code, head.content) == (full.status_code, b"")
    full.headers.pop("x-request-id")
    head.headers.pop("x-request-id")
    assert head.headers == full.headers
    assert set((await site.client.post(path)).headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/static/docs.js", "text/javascript; charset=utf-8"),
        ("/static/docs.css", "text/css; charset=utf-8"),
        ("/static/icon.svg", "image/svg+xml"),
    ],
)
async def test_pages_are_served_safely_and_asked_for_anew(site: Site, path: str, kind: str) -> None:
    page = await site.client.get(path)
    assert (page.status_code, page.headers["content-type"], page.headers["cache-control"]) == (200, kind, "no-cache")
    assert page.headers["x-content-type-options"] == "nosniff"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    again = await site.client.get(path, headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await site.client.head(path)).status_code == 200


@pytest.mark.parametrize("asked", ["bytes=0-4", "bytes=999999-", "lines=1", "bytes=9-1", "bytes=" + "0-1," * 500])
async def test_pages_come_whole_whatever_range_is_asked_for(site: Site, asked: str) -> None:
    whole = await site.client.get("/")
    part = await site.client.get("/", headers={"Range": asked})
    assert (part.status_code, part.content) == (200, whole.content)
    assert part.headers["accept-ranges"] == "none"


@pytest.mark.parametrize(
    "path", ["../errors.py", "%2e%2e/errors.py", "..%2ferrors.py", "/etc/passwd", "", "none.js", "a%00"]
)
async def test_nothing_outside_the_folder_is_served(site: Site, path: str) -> None:
    reply = await site.client.get(f"/static/{path}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("page", ["index.html", "docs.html"])
async def test_pages_ask_for_nothing_but_what_the_gateway_serves(site: Site, page: str) -> None:
    text = (WEB / page).read_text()
    assert not re.search(r"https?://|<style|<script(?![^>]*src=)|\son\w+=|style=", text)
    for target in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert (await site.client.get("/" + target.removeprefix("./"))).status_code == 200, target


async def test_the_description_covers_every_endpoint(site: Site) -> None:
    described = (await site.client.get("/openapi.json")).json()
    assert {(path, method) for path, item in described["paths"].items() for method in item} == {
        ("/v1/chat/completions", "post"), ("/v1/completions", "post"), ("/v1/embeddings", "post"),
        ("/v1/retrieve", "post"),
        ("/v1/models", "get"), ("/v1/models/{name}", "get"), ("/generate", "post"),
        ("/v1/collections", "get"), ("/v1/collections/{name}", "get"), ("/v1/collections/{name}", "delete"),
        ("/v1/collections/{name}/documents", "post"), ("/v1/collections/{name}/documents", "delete"),
        ("/healthz", "get"), ("/readyz", "get"),
    }  # fmt: skip
    fields = described["components"]["schemas"]["ChatRequest"]["properties"]
    assert all("description" in field for field in fields.values())
    language = described["components"]["schemas"]["RagFields"]["properties"]["filter"]["description"]
    words = ("eq", "ne", "in", "exists", "lt", "lte", "gt", "gte")
    assert all(f"``{word}``" in language for word in words)
    assert all(f'"{word}":' in language for word in ("and", "or", "not"))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/v1/chat/completions/", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("DELETE", "/", 405, "method_not_allowed"),
        ("GET", "/" + "a" * 5000, 404, "not_found"),
    ],
)
async def test_routing_errors_have_openais_shape(site: Site, method: str, path: str, status: int, code: str) -> None:
    reply = await site.client.request(method, path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert ("allow" in reply.headers) == (status == 405)
    assert len(reply.text) < 400
    assert reply.headers["x-request-id"]


async def test_the_access_log_names_the_request_and_its_trace(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ray.serve.baton.gateway")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await site.ask(messages=[{"role": "user", "content": "secret"}])
    await site.client.get("/healthz", headers={"x-request-id": "abc", "traceparent": trace})
    await site.client.get("/healthz?secret", headers={"traceparent": "junk secret"})
    lines = [record.getMessage() for record in caplog.records if record.name == "ray.serve.baton.gateway"]
    assert lines[0].startswith("POST /v1/chat/completions 200")
    assert "profile=default" in lines[0]
    assert "request_id=abc" in lines[1]
    assert f"trace_id={trace[3:35]}" in lines[1]
    assert "secret" not in "".join(lines)


def test_the_builder_travels_to_a_replica() -> None:
    assert pickle.loads(pickle.dumps(build_api)) is build_api
