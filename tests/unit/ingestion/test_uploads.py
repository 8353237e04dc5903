"""Uploads side by side, and uploads that nobody waits for any more."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.config.retrieval import ChunkingConfig
from app.errors import CollectionNotFound, DeadlineExceeded
from app.ingestion.indexer import Indexer
from app.jobs import DocumentResult
from app.stopping import stoppable
from app.testing.embedder import FakeEmbedder
from app.testing.store import MemoryStore

LONG = [{"id": "long", "text": "\n\n".join(f"Paragraph {number} of a long text. " * 12 for number in range(600))}]


class Slow(FakeEmbedder):
    """Embeds a batch whenever it is let: ``let`` releases one call, ``begun`` tells that one waits."""

    def __init__(self):
        super().__init__(16)
        self.let, self.begun, self.free = threading.Semaphore(0), threading.Semaphore(0), False
        self.calls = 0

    def encode(self, texts, kind, tokens=False):
        if not self.free and kind == "passage":
            self.calls += 1
            self.begun.release()
            assert self.let.acquire(timeout=10)
        return super().encode(texts, kind, tokens)


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def indexer(store, slow):
    made = Indexer(store, slow, ChunkingConfig())
    yield made
    made.close()


def test_a_short_upload_waits_for_one_batch_of_a_long_one(indexer, slow, store):
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(indexer.upsert, "c", LONG)
        assert slow.begun.acquire(timeout=10)
        short = pool.submit(indexer.upsert, "d", [{"text": "zebra"}])
        while indexer._turns._work_queue.qsize() < 1:
            pass
        slow.let.release()
        assert slow.begun.acquire(timeout=10)
        slow.let.release()
        assert short.result(timeout=10) == DocumentResult(1, 1, 0)
        assert not long.done()
        assert [found.name for found in store.list_collections()] == ["d"]
        slow.free = True
        slow.let.release(1000)
        assert long.result(timeout=30).documents == 1


def test_two_uploads_of_one_document_store_it_once(indexer, slow, store):
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(indexer.upsert, "c", [{"id": "a", "text": "zebra"}]) for _ in range(2)]
        slow.let.release(2)
        done = sorted((found.result(timeout=10) for found in both), key=lambda found: found.documents)
    assert done == [DocumentResult(0, 0, 1), DocumentResult(1, 1, 0)]
    assert store.describe("c").passages == 1


def test_what_is_dropped_while_an_upload_is_embedded_is_embedded_anew(indexer, slow, store):
    slow.let.release(1)
    indexer.upsert("c", [{"id": "old", "text": "lion"}])
    assert slow.begun.acquire(timeout=10)
    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(indexer.upsert, "c", [{"id": "old", "text": "lion"}, {"id": "new", "text": "zebra"}])
        assert slow.begun.acquire(timeout=10)
        indexer.drop("c")
        slow.let.release(2)
        assert upload.result(timeout=10) == DocumentResult(2, 2, 0)
    assert store.describe("c").documents == 2


def test_an_upload_that_nobody_waits_for_stops_and_leaves_nothing(indexer, slow, store):
    upload, stop = stoppable(indexer.upsert, "c", LONG)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(upload)
        assert slow.begun.acquire(timeout=10)
        stop()
        slow.let.release(1)
        with pytest.raises(DeadlineExceeded):
            running.result(timeout=10)
    assert slow.calls == 1
    with pytest.raises(CollectionNotFound):
        store.describe("c")
