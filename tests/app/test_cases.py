"""Requests that broke systems like this one, one a line in `cases/*.jsonl`, against the whole running pipeline.

A line has `name`, `body` (or `raw`, the exact text), `expect` (allowed statuses) and perhaps `contains`, `absent`,
`headers`, `path` and `max_s`. `@MODEL@` stands for the model, `@REPEAT:text:N@` for a text repeated N times.
"""

import json
import re
import shutil
import time
from pathlib import Path

import httpx
import pytest

from tests.app.baton import MODEL, events

CASES = Path(__file__).parent / "cases"
LEAKS = ("Traceback", "ray.exceptions", "site-packages")


def lines():
    for path in sorted(CASES.glob("*.jsonl")):
        if path.stem != "evil_documents":
            for number, line in enumerate(path.read_text("utf-8").splitlines()):
                if line.strip():
                    yield pytest.param(json.loads(line), id=f"{path.stem}-{number}")


def filled(value):
    if isinstance(value, str):
        repeated = re.sub(r"@REPEAT:(.*?):(\d+)@", lambda found: found[1] * int(found[2]), value, flags=re.S)
        return repeated.replace("@MODEL@", MODEL)
    if isinstance(value, list):
        return [filled(part) for part in value]
    if isinstance(value, dict):
        return {key: filled(part) for key, part in value.items()}
    return value


@pytest.fixture(scope="module")
def collections(baton):
    """The collections that the cases name: filled, empty, of another vector size, half written, hostile."""
    put(
        baton,
        "probe",
        [{"text": "The zebra note has the code word ZEBRA-77."}, {"text": "Lions sleep."}, {"text": "x"}],
    )
    put(baton, "empty", [{"id": "only", "text": "gone soon"}])
    baton.http.request("DELETE", "/v1/collections/empty/documents", json={"ids": ["only"]}).raise_for_status()
    put(baton, "evil", [json.loads(line) for line in (CASES / "evil_documents.jsonl").read_text().splitlines()])
    index = baton.data / "index"
    other_size(index)
    (index / "broken.lance" / "data").mkdir(parents=True)
    yield baton
    for name in ("probe", "empty", "evil", "dim7"):
        baton.http.delete(f"/v1/collections/{name}")
    shutil.rmtree(index / "broken.lance", ignore_errors=True)


def put(baton, name, documents):
    answer = baton.http.post(f"/v1/collections/{name}/documents", json={"documents": documents})
    assert answer.status_code == 200, answer.text


def other_size(index):
    from app.config.retrieval import ChunkingConfig, StoreConfig
    from app.ingestion.indexer import Indexer
    from app.stores.build import build_store
    from app.testing.embedder import FakeEmbedder

    store = build_store(StoreConfig(kind="lancedb", uri=str(index)))
    store.start()
    Indexer(store, FakeEmbedder(7), ChunkingConfig()).upsert("dim7", [{"text": "zebra"}])
    store.close()


@pytest.mark.parametrize("case", list(lines()))
def test_case(case, collections):
    raw = case["raw"].replace("@MODEL@", MODEL) if "raw" in case else json.dumps(filled(case["body"]))
    headers = {"Content-Type": "application/json"} | case.get("headers", {})
    started = time.monotonic()
    answer = httpx.post(
        collections.base + case.get("path", "/v1/chat/completions"),
        content=raw.encode("utf-8", "surrogatepass"),
        headers=headers,
        timeout=case.get("max_s", 60),
    )
    assert time.monotonic() - started < case.get("max_s", 60)
    assert answer.status_code in case["expect"], answer.text[:300]
    for text in case.get("contains", ()):
        assert text in answer.text
    for text in case.get("absent", LEAKS):
        assert text not in answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"]
        assert error["type"]
        assert error["code"]
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert events(answer.content)[-1] == b"[DONE]"
    else:
        assert answer.json()["choices"]


def test_an_unknown_collection_is_never_created(collections):
    for _ in range(2):
        answer = collections.chat(rag={"collection": "nope"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "collection_not_found")
    assert not (collections.data / "index" / "nope.lance").exists()


def test_an_empty_collection_is_answered_and_flagged(collections):
    answer = collections.chat("zebra", rag={"collection": "empty"})
    assert answer.json()["baton"]["flags"]["without_context"] is True


def test_template_text_in_documents_stays_text(collections):
    answer = collections.chat("Summarise the note.", rag={"collection": "evil", "top_k": 3, "return_contexts": True})
    contexts = answer.json()["baton"]["contexts"]
    assert any("{{ 7*191 }}" in context["text"] for context in contexts)


def test_a_collection_of_another_vector_size_says_so(collections):
    error = collections.chat("zebra", rag={"collection": "dim7"}).json()["error"]
    assert error["code"] == "embedding_mismatch"
    assert "7" in error["message"]


def test_a_damaged_collection_does_not_hide_the_others(collections):
    listed = {found["name"] for found in collections.http.get("/v1/collections").json()["data"]}
    assert {"probe", "docs"} <= listed
    assert collections.chat("zebra", rag={"collection": "probe"}).status_code == 200
