"""``POST /v1/retrieve``."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_site import Site


async def test_it_searches_what_the_profile_says(site: Site) -> None:
    reply = await site.ask("/v1/retrieve", query="zebra", profile="docs")
    assert [passage["id"] for passage in reply.json()["data"]] == ["z"]
    assert "mark" not in reply.json()["data"][0]
    job = site.job
    assert job.retrieval is not None
    assert (job.retrieval.text, job.retrieval.top_k, job.policy) == ("zebra", 3, "default")


async def test_a_named_collection_is_searched_where_the_profile_searches_none(site: Site) -> None:
    reply = await site.ask("/v1/retrieve", query="zebra", rag={"collection": "probe"})
    assert len(reply.json()["data"]) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": " "}, "query"),
        ({"query": "a"}, "rag.collection"),
        ({"query": "a", "rag": {"enabled": False, "collection": "probe"}}, "rag.enabled"),
        ({"query": "a", "rag": {"return_contexts": True, "collection": "probe"}}, "rag.return_contexts"),
        ({"query": "a", "rag": {"collection": "probe", "top_k": 9999}}, "rag.top_k"),
        ({"query": "a", "priority": "first", "rag": {"collection": "probe"}}, "priority"),
        ({"query": "a", "model": "smol"}, "model"),
    ],
)
async def test_faults_name_their_field(site: Site, body: dict[str, Any], param: str) -> None:
    reply = await site.ask("/v1/retrieve", **body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_an_unknown_collection_is_told(site: Site) -> None:
    reply = await site.ask("/v1/retrieve", query="a", rag={"collection": "none"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "collection_not_found")
    told = "There is no collection 'none': GET /v1/collections lists those there are."
    assert reply.json()["error"]["message"] == told
