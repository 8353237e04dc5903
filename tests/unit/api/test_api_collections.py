"""Documents and collections over HTTP, and embeddings."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import orjson
import pytest
from gateway_site import Site

from app.errors import CollectionDamaged

DOCUMENTS = "/v1/collections/notes/documents"
PARQUET = "application/vnd.apache.parquet"
NDJSON = {"Content-Type": "application/x-ndjson"}


async def test_documents_are_stored_listed_and_deleted(site: Site) -> None:
    document = {"id": "a", "text": "One.", "source": "s", "metadata": {"lang": "en", "price": 1.5, "new": True}}
    stored = await site.client.post(DOCUMENTS, json={"documents": [document, {"text": "二"}]})
    assert stored.json() == {"collection": "notes", "documents": 2, "passages": 2, "unchanged": 0}
    assert site.pipeline.collections["notes"].documents["a"] == document
    listed = (await site.client.get("/v1/collections")).json()["data"]
    notes = {"name": "notes", "documents": 2, "passages": 2, "dimension": 4}
    assert notes in listed
    assert (await site.client.get("/v1/collections/notes")).json() == notes
    deleted = await site.client.request("DELETE", DOCUMENTS, json={"ids": ["a", "b"]})
    assert deleted.json() == {"collection": "notes", "deleted": 1}
    dropped = await site.client.delete("/v1/collections/notes")
    assert dropped.json() == {"name": "notes", "deleted": True}
    for method in ("GET", "DELETE"):
        gone = await site.client.request(method, "/v1/collections/notes")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "collection_not_found")


async def test_documents_come_one_a_line_too(site: Site) -> None:
    raw = '{"id": "a", "text": "line one"}\r\n\n{"id": "b", "text": "U+2028: \u2028 二"}'.encode()
    stored = await site.client.post(DOCUMENTS, content=raw, headers=NDJSON)
    assert stored.json()["documents"] == 2
    assert "\u2028" in site.pipeline.collections["notes"].documents["b"]["text"]


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"", "empty"),
        (b'{"text": "a"}\nnonsense', "Line 2"),
        (b'{"text": "a"}\n\n{"id": "x"}', "Line 3: text"),
        (b'{"text": "a", "vector": [1]}', "Line 1: Unknown field 'vector'"),
        (b'{"text": "a"}\n' * 1001, "1000"),
    ],
)
async def test_a_faulty_line_is_named_and_nothing_is_stored(site: Site, raw: bytes, named: str) -> None:
    reply = await site.client.post(DOCUMENTS, content=raw, headers=NDJSON)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]
    assert "notes" not in site.pipeline.collections


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"documents": [{"text": ""}]},
        {"documents": [{"text": "a", "id": ""}]},
        {"documents": [{"text": "a", "id": "x" * 257}]},
        {"documents": [{"text": "a", "metadata": {"k": [1]}}]},
        {"documents": [{"text": "a", "metadata": {"k": None}}]},
        {"documents": [{"text": "a"}] * 1001},
        {"documents": {"text": "a"}},
        [{"text": "a"}],
    ],
)
async def test_faulty_documents_are_refused(site: Site, body: Any) -> None:
    assert (await site.client.post(DOCUMENTS, json=body)).status_code == 400


@pytest.mark.parametrize(
    "kind", ["text/html", "application/x-www-form-urlencoded", "garbage", "text/plain/x", "text/plain; charset=latin-1"]
)
async def test_other_types_of_documents_are_415(site: Site, kind: str) -> None:
    reply = await site.client.post(DOCUMENTS, content=b"text", headers={"Content-Type": kind})
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")
    if "charset" not in kind:
        for accepted in ("application/json", "application/x-ndjson", "text/markdown", "text/plain", PARQUET):
            assert accepted in reply.json()["error"]["message"]


@pytest.mark.parametrize("name", ["UPPER", "a b", "..", "%2e%2e", "知识", "a" * 65, "_a", "a%0a"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_names_keep_to_the_safe_pattern(site: Site, name: str, method: str) -> None:
    reply = await site.client.request(method, f"/v1/collections/{name}")
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["code"] in ("invalid_request", "not_found")


async def test_ids_are_checked(site: Site) -> None:
    for body in ({"ids": []}, {"ids": [True]}, {"ids": [1.5]}, {"ids": ["a\n"]}, {"ids": ["a"] * 1001}, {}):
        assert (await site.client.request("DELETE", DOCUMENTS, json=body)).status_code == 400


async def test_ids_may_be_whole_numbers_and_a_document_may_have_a_title(site: Site) -> None:
    document = {"id": 7, "text": "The zebra.", "title": "Animals"}
    assert (await site.client.post(DOCUMENTS, json={"documents": [document]})).status_code == 200
    assert site.pipeline.collections["notes"].documents["7"]["title"] == "Animals"
    assert (await site.client.request("DELETE", DOCUMENTS, json={"ids": [7]})).json()["deleted"] == 1


async def test_documents_are_deleted_by_ids_in_the_query_too(site: Site) -> None:
    documents = [{"id": name, "text": name} for name in ("a", "b", "c")]
    await site.client.post(DOCUMENTS, json={"documents": documents})
    assert (await site.client.delete(f"{DOCUMENTS}?id=a&id=b&id=x")).json()["deleted"] == 2
    assert set(site.pipeline.collections["notes"].documents) == {"c"}


@pytest.mark.parametrize(
    ("query", "body", "named"),
    [
        ("?id=a", {"ids": ["b"]}, "not in both"),
        ("?ids=a", None, "Unknown field 'ids' in the query"),
        ("?id=", None, "printable characters"),
        ("", None, "The request body is empty"),
    ],
)
async def test_ids_in_the_query_are_checked(site: Site, query: str, body: Any, named: str) -> None:
    reply = await site.client.request("DELETE", DOCUMENTS + query, json=body)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ({"id": "dup", "text": "first text"}, {"id": "dup", "text": "second text"}, "the id 'dup'"),
        ({"id": 7, "text": "one"}, {"id": "7", "text": "two"}, "the id '7'"),
        ({"text": "one", "metadata": {"a": 1}}, {"text": "one", "metadata": {"a": True}}, "the text"),
        ({"id": "a", "text": "one", "title": "A"}, {"id": "a", "text": "one"}, "the id 'a'"),
    ],
)
async def test_no_document_is_lost_to_another_of_the_same_id(site: Site, first: Any, second: Any, shared: str) -> None:
    apart = {"id": "x", "text": "another"}
    lines = b"\n\n".join(map(orjson.dumps, (first, apart, second)))
    listed = await site.client.post(DOCUMENTS, json={"documents": [first, apart, second]})
    lined = await site.client.post(DOCUMENTS, content=lines, headers=NDJSON)
    for reply, sentence in (
        (listed, f"documents[2] has {shared} of documents[0] and other content"),
        (lined, f"Line 5 has {shared} of Line 1 and other content"),
    ):
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "documents")
        assert reply.json()["error"]["message"].startswith(sentence)
    assert "notes" not in site.pipeline.collections
    again = await site.client.post(DOCUMENTS, json={"documents": [first, first]})
    assert again.status_code == 200


async def test_one_document_has_one_id(site: Site) -> None:
    headers = {"Content-Type": "text/plain"}
    reply = await site.client.post(f"{DOCUMENTS}?id=a&id=b", content=b"text", headers=headers)
    assert reply.status_code == 400
    assert "'id' stands more than once" in reply.json()["error"]["message"]


async def test_a_damaged_collection_can_be_tried_later(site: Site) -> None:
    site.pipeline.collections["broken"].fault = CollectionDamaged("broken", stage="retriever")
    reply = await site.client.delete("/v1/collections/broken")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")


async def test_embeddings_come_as_numbers_and_as_base64(site: Site) -> None:
    plain = (await site.client.post("/v1/embeddings", json={"input": ["a", "bb"], "model": "embedder"})).json()
    packed = (await site.client.post("/v1/embeddings", json={"input": ["a", "bb"], "encoding_format": "base64"})).json()
    assert [row["index"] for row in plain["data"]] == [0, 1]
    for number, text in zip(plain["data"], packed["data"], strict=True):
        unpacked = np.frombuffer(base64.b64decode(text["embedding"]), "<f4")
        assert np.allclose(unpacked, number["embedding"])
        assert np.isclose(np.linalg.norm(unpacked), 1)
    assert (plain["model"], plain["usage"]) == ("embedder", {"prompt_tokens": 3, "total_tokens": 3})
    one = await site.client.post("/v1/embeddings", json={"input": "a", "dimensions": 4})
    assert len(one.json()["data"][0]["embedding"]) == 4


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"input": []}, 400),
        ({"input": ""}, 400),
        ({"input": ["a", ""]}, 400),
        ({"input": [1, 2]}, 400),
        ({"input": [[1, 2]]}, 400),
        ({"input": None}, 400),
        ({}, 400),
        ({"input": ["a"] * 257}, 400),
        ({"input": "a", "dimensions": 3}, 400),
        ({"input": "a", "encoding_format": "hex"}, 400),
        ({"input": "a", "model": "smol"}, 404),
        ({"input": "a", "model": "nope"}, 404),
        ({"input": "a bomb"}, 400),
    ],
)
async def test_embeddings_refuse_what_they_cannot_do(site: Site, fields: Any, status: int) -> None:
    site.pipeline.rescript(blocked_terms=("bomb",))
    assert (await site.client.post("/v1/embeddings", json=fields)).status_code == status
