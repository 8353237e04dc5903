"""A parameter that stands in the query twice is refused by every route, but for what is a list."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute
from gateway_site import Site

from app.api.application import build_api
from app.config.gateway import GatewayConfig
from app.testing.pipeline import FakePipeline

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def every_route() -> list[tuple[str, str]]:
    app = build_api(FakePipeline, GatewayConfig)
    found = [(sorted(route.methods)[0], route.path) for route in app.routes if isinstance(route, APIRoute)]
    return [(method, path.replace("{profile}", "docs").replace("{name:path}", "smol")) for method, path in found]


@pytest.mark.parametrize(("method", "path"), every_route())
async def test_a_doubled_parameter_is_refused_everywhere(site: Site, method: str, path: str) -> None:
    json = CHAT if method == "POST" and not path.startswith("/v1/files") else None
    reply = await site.client.request(method, f"{path}?limit=1&limit=2", json=json)
    assert reply.status_code == 400, path
    if method != "HEAD":
        error = reply.json()["error"]
        assert (error["message"], error["param"]) == (
            "'limit' stands more than once in the query: give it once.",
            "limit",
        )


async def test_ids_to_delete_may_be_several_and_nothing_beside_them(site: Site) -> None:
    documents = "/v1/collections/probe/documents"
    assert (await site.client.delete(f"{documents}?id=z&id=y")).json()["deleted"] == 1
    assert (await site.client.delete(f"{documents}?id=z&a=1&a=2")).status_code == 400
    assert (await site.client.get("/v1/models?a=1&b=1")).status_code == 200
