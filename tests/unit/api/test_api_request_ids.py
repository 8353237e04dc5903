"""The request id stands in each reply once, and is fit to be echoed, with and without Serve's proxy in front."""

from __future__ import annotations

import importlib
import re
from typing import Any

import httpx
import pytest
from gateway_site import Site
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.application import build_api
from app.api.request_ids import RequestIdMiddleware
from app.ops.local_cluster import ENVIRONMENT

OURS = r"req-[0-9a-f]{32}"
ODD = ["", "x" * 129, "a b", "a\tb", "é", "a;b", "<x>"]


@pytest.fixture(params=["alone", "behind Serve"])
def client(request: pytest.FixtureRequest, site: Site) -> httpx.AsyncClient:
    app: ASGIApp = site.app
    if request.param == "behind Serve":
        inner = build_api(lambda: site.pipeline, lambda: site.config, behind_proxy=True)
        app = serves_proxy(inner)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def serves_proxy(app: ASGIApp) -> ASGIApp:
    """Wrap an application as the proxy does: what the callback names goes around what Serve itself adds.

    Serve's part is restated (``RequestIdMiddleware`` of ``ray.serve._private.http_util``): it takes seconds to import.
    """

    async def serves_own(scope: Scope, receive: Receive, send: Send) -> None:
        request_id = MutableHeaders(scope=scope).setdefault("x-request-id", "made by Serve")

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("X-Request-ID", request_id)
            await send(message)

        await app(scope, receive, named)

    module, name = ENVIRONMENT["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].split(":")
    wrapped: ASGIApp = serves_own
    for middleware in getattr(importlib.import_module(module), name)():
        wrapped = middleware.cls(wrapped, *middleware.args, **middleware.kwargs)
    return wrapped


@pytest.mark.parametrize("sent", ["abc", "A-1_b.c:d", "x" * 128])
async def test_request_ids_are_echoed_once(client: httpx.AsyncClient, sent: str) -> None:
    for path in ("/healthz", "/nope", "/"):
        reply = await client.get(path, headers={"x-request-id": sent})
        assert reply.headers.get_list("x-request-id") == [sent]


@pytest.mark.parametrize("sent", ODD)
async def test_odd_request_ids_are_replaced(client: httpx.AsyncClient, sent: str) -> None:
    reply = await client.get("/healthz", headers={"x-request-id": sent.encode()})
    (echoed,) = reply.headers.get_list("x-request-id")
    assert re.fullmatch(OURS, echoed)


async def test_a_request_without_an_id_gets_one_that_its_job_has_too(client: httpx.AsyncClient, site: Site) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    (echoed,) = (await client.post("/v1/chat/completions", json=body)).headers.get_list("x-request-id")
    assert re.fullmatch(OURS, echoed)
    assert site.job.request_id == echoed


async def test_two_ids_become_one() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        seen.extend(scope["headers"])

    sent = [(b"x-request-id", b"a"), (b"host", b"h"), (b"x-request-id", b"b b")]
    scope: Any = {"type": "http", "headers": sent}
    wrapped: Any = RequestIdMiddleware(app)
    await wrapped(scope, None, None)
    assert sorted(seen) == [(b"host", b"h"), (b"x-request-id", b"a")]
