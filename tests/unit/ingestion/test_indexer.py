"""The indexer over the in-memory store and the fake embedder."""

import numpy as np
import pytest

from app.config.retrieval import ChunkingConfig
from app.errors import CollectionNotFound, EmbeddingMismatch, InvalidRequest
from app.ingestion.indexer import Indexer
from app.jobs import DocumentResult
from app.stores.search import Search, search_collection
from app.testing.embedder import FakeEmbedder
from app.testing.store import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


def indexer(store, config=None, **embedder):
    return Indexer(store, FakeEmbedder(16, **embedder), config or ChunkingConfig())


def passages(store, name="c"):
    with store.snapshot(name) as snapshot:
        hits = search_collection(snapshot, name, Search(np.ones(16, np.float32), (), 1000, mode="vector"))
        return {hit.passage.id: hit.passage.text for hit in hits}


def test_unchanged_documents_are_skipped(store):
    documents = [{"id": "a", "text": "zebra"}, {"id": "b", "text": "lion"}]
    assert indexer(store).upsert("c", documents) == DocumentResult(2, 2, 0)
    assert indexer(store).upsert("c", documents) == DocumentResult(0, 0, 2)
    documents[0]["metadata"] = {"lang": "en"}
    assert indexer(store).upsert("c", documents) == DocumentResult(1, 1, 1)


def test_another_way_of_cutting_stores_again(store):
    documents = [{"id": "a", "text": "One two three four. " * 10}]
    indexer(store).upsert("c", documents)
    done = indexer(store, ChunkingConfig(size_tokens=16, overlap_tokens=0)).upsert("c", documents)
    assert done.documents == 1
    assert done.passages == len(passages(store)) > 1


def test_same_text_without_an_id_is_one_document(store):
    assert indexer(store).upsert("c", [{"text": "zebra"}, {"text": "zebra"}]) == DocumentResult(1, 1, 0)


def test_the_later_of_two_with_one_id_counts(store):
    indexer(store).upsert("c", [{"id": "a", "text": "zebra"}, {"id": "a", "text": "lion"}])
    assert passages(store) == {"a#0": "lion"}


def test_one_faulty_document_stores_nothing(store):
    with pytest.raises(InvalidRequest, match=r"documents\[1\].text"):
        indexer(store).upsert("c", [{"text": "good"}, {"text": ""}])
    assert store.list_collections() == []


def test_text_beyond_the_embedders_window_is_cut_not_lost(store):
    words = [f"w{number}" for number in range(50)]
    indexer(store, max_tokens=8).upsert("c", [{"id": "a", "text": " ".join(words)}])
    found = passages(store)
    assert " ".join(found[f"a#{number}"] for number in range(len(found))).split() == words
    assert max(len(text.split()) for text in found.values()) <= 8


def test_a_collection_belongs_to_one_embedder(store):
    indexer(store).upsert("c", [{"text": "x"}])
    with pytest.raises(EmbeddingMismatch, match="built with the embedder 'fake', not 'other'"):
        indexer(store, name="other").upsert("c", [{"text": "y"}])
    with pytest.raises(EmbeddingMismatch, match="16 numbers"):
        Indexer(store, FakeEmbedder(7), ChunkingConfig()).upsert("c", [{"text": "y"}])


def test_no_documents_make_an_empty_collection(store):
    assert indexer(store).upsert("c", []) == DocumentResult(0, 0, 0)
    assert store.describe("c").passages == 0


def test_documents_are_deleted(store):
    indexer(store).upsert("c", [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}])
    assert indexer(store).delete("c", ["a", "\0", "none"]) == 1
    assert passages(store) == {"b#0": "y"}
    with pytest.raises(CollectionNotFound):
        indexer(store).delete("nope", ["a"])


@pytest.mark.parametrize("ids", ["a", [5], [""], ["x" * 300], ["a"] * 10_001])
def test_faulty_ids_are_refused(store, ids):
    with pytest.raises(InvalidRequest, match="ids must be"):
        indexer(store).delete("c", ids)


def test_numbers_of_documents_are_bounded(store):
    with pytest.raises(InvalidRequest, match="at most 1000"):
        indexer(store).upsert("c", [{"text": "x"}] * 1001)
    with pytest.raises(InvalidRequest, match="must be a list"):
        indexer(store).upsert("c", {"text": "x"})
