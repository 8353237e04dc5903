"""Documents sent as the files they are: Markdown, text and Parquet."""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gateway_site import Site

DOCUMENTS = "/v1/collections/notes/documents"
PARQUET = "application/vnd.apache.parquet"
MARKDOWN = b"\xef\xbb\xbf---\nid: front\nsource: guide.md\ntitle: A: guide\nprice: 5\n---\n# Head\nText"


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    file = BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


async def send(site: Site, kind: str, raw: bytes, query: str = "") -> Any:
    return await site.client.post(f"{DOCUMENTS}?{query}", content=raw, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    ("kind", "raw", "query", "stored"),
    [
        (
            "text/markdown",
            MARKDOWN,
            "",
            {
                "id": "front",
                "source": "guide.md",
                "title": "A: guide",
                "text": "# Head\nText",
                "metadata": {"price": 5},
            },
        ),
        (
            "Text/Markdown; charset=UTF-8",
            MARKDOWN,
            "id=mine&source=docs/a.md",
            {
                "id": "mine",
                "source": "docs/a.md",
                "title": "A: guide",
                "text": "# Head\nText",
                "metadata": {"price": 5},
            },
        ),
        (
            "text/plain",
            "---\nid: x\n---\n二".encode(),
            "id=a%20b",
            {"id": "a b", "text": "---\nid: x\n---\n二", "metadata": {}},
        ),
        (
            "text/plain",
            b"One.",
            "",
            {"id": hashlib.blake2b(b"One.", digest_size=12).hexdigest(), "text": "One.", "metadata": {}},
        ),
    ],
)
async def test_one_text_is_one_document(site: Site, kind: str, raw: bytes, query: str, stored: dict[str, Any]) -> None:
    reply = await send(site, kind, raw, query)
    assert reply.json() == {"collection": "notes", "documents": 1, "passages": 1, "unchanged": 0}
    assert site.pipeline.collections["notes"].documents == {stored["id"]: stored}


async def test_no_row_is_lost_to_another_of_the_same_id(site: Site) -> None:
    reply = await send(site, PARQUET, parquet({"id": ["a", "b", "a"], "text": ["one", "two", "three"]}))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith("Row 3 has the id 'a' of Row 1 and other content")
    assert "notes" not in site.pipeline.collections


async def test_parquet_rows_are_documents(site: Site) -> None:
    raw = parquet(
        {
            "id": [1, 2],
            "text": ["zebra", "斑马"],
            "source": [None, "b"],
            "metadata": [{"lang": "en"}, {"lang": "zh"}],
            "price": [2.5, None],
            "tags": [["x"], ["y"]],
        }
    )
    reply = await send(site, PARQUET, raw, "source=rows.parquet")
    assert reply.json()["documents"] == 2
    assert site.pipeline.collections["notes"].documents == {
        "1": {"id": "1", "text": "zebra", "source": "rows.parquet", "metadata": {"lang": "en", "price": 2.5}},
        "2": {"id": "2", "text": "斑马", "source": "b", "metadata": {"lang": "zh"}},
    }


GOOD = parquet({"text": ["good"]})


@pytest.mark.parametrize(
    ("kind", "raw", "query", "named"),
    [
        ("text/markdown", b"", "", "document.text is missing or blank"),
        ("text/markdown", b"---\nid: x\n---\n \n", "", "document.text is missing or blank"),
        ("text/markdown", b"---\nmetadata: 5\n---\nText", "", "document.metadata must be an object"),
        ("text/plain", b"caf\xe9", "", "not UTF-8 (byte 3)"),
        ("text/plain", b"a\0b", "", "NUL"),
        ("text/plain", b"text", "id=", "id: "),
        ("text/plain", b"text", "id=a%0a", "id: must be 1 to 256 printable"),
        ("text/plain", b"text", "id=" + "x" * 257, "256"),
        ("text/plain", b"text", "source=" + "x" * 1025, "1024"),
        ("text/plain", b"text", "ids=x", "Unknown field 'ids'"),
        ("application/json", b'{"documents": [{"text": "a"}]}', "id=x", "id in the query"),
        ("application/x-ndjson", b'{"text": "a"}', "source=x", "source in the query"),
        (PARQUET, GOOD, "id=x", "id in the query"),
        (PARQUET, b"", "", "not a readable Parquet file"),
        (PARQUET, b"PAR1nonsensePAR1", "", "not a readable Parquet file"),
        (PARQUET, GOOD[: len(GOOD) // 2], "", "not a readable Parquet file"),
        (PARQUET, parquet({"body": ["a"]}), "", "has no column"),
        (PARQUET, parquet({"text": [["a"]]}), "", "has no column"),
        (PARQUET, parquet({"text": pa.array([], pa.string())}), "", "at least one document"),
        (PARQUET, parquet({"text": ["a", None, "c"]}), "", "Row 2: row.text is missing or blank"),
        (PARQUET, parquet({"text": ["a"] * 40, "id": ["x"] * 39 + [""]}), "", "Row 40: row.id must be"),
        (PARQUET, parquet({"text": ["a"] * 1001}), "", "limit of 1000"),
        ("application/json", b'{"documents": []}', "", "documents is empty: at least one document is needed"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_stored(
    site: Site, kind: str, raw: bytes, query: str, named: str
) -> None:
    reply = await send(site, kind, raw, query)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert named in reply.json()["error"]["message"]
    assert "notes" not in site.pipeline.collections


@pytest.mark.parametrize(
    "raw",
    [
        parquet({"text": ["x" * 100_000]}, compression="zstd", use_dictionary=False),
        parquet({"text": ["x" * 30_000] * 1000}, compression="zstd"),
    ],
    ids=["compressed", "one value in many rows"],
)
async def test_a_small_file_that_unpacks_to_much_is_refused(site: Site, raw: bytes) -> None:
    site.limit(max_body_bytes=50_000)
    assert len(raw) < 5000
    reply = await send(site, PARQUET, raw)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert "50000 bytes" in reply.json()["error"]["message"]
    assert "notes" not in site.pipeline.collections


async def test_what_announces_too_much_is_not_even_unpacked(site: Site) -> None:
    site.limit(max_body_bytes=50_000)
    whole = parquet({"text": ["x" * 100_000]}, compression="zstd", use_dictionary=False)
    pages_gone = whole[:4] + bytes(16) + whole[20:]
    assert "unpacks to more" in (await send(site, PARQUET, pages_gone)).json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/markdown", "text/plain", PARQUET])
async def test_the_body_limit_holds_for_files(site: Site, kind: str) -> None:
    site.limit(max_body_bytes=10)
    assert (await send(site, kind, b"x" * 11)).status_code == 413


async def test_the_description_names_every_type(site: Site) -> None:
    described = (await site.client.get("/openapi.json")).json()["paths"]["/v1/collections/{name}/documents"]["post"]
    kinds = {"application/json", "application/x-ndjson", "text/markdown", "text/plain", PARQUET}
    assert described["requestBody"]["content"].keys() == kinds
    assert {"name", "id", "source"} == {parameter["name"] for parameter in described["parameters"]}
    assert orjson.dumps(described["requestBody"]["content"]["application/json"]).count(b'"minItems":1') == 1
