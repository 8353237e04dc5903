"""Uploads in the retriever's own threads: what is cancelled stops, and lists and embeddings do not wait."""

import asyncio
import warnings

import pytest

from app.config.embedder import EmbedderConfig
from app.config.retrieval import RetrieverConfig, StoreConfig
from app.errors import CollectionNotFound
from app.jobs import DocumentResult
from app.stages.retriever import Retriever, RetrieverStructure
from tests.unit.ingestion.test_uploads import LONG, slow, store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own import
    from app.deployments.runner import StageRunner

__all__ = ["slow", "store"]  # the fixtures


@pytest.fixture
async def runner(store, slow):
    structure = RetrieverStructure(
        store=StoreConfig(kind="lancedb", uri="unused"), embedder=EmbedderConfig(source="unused")
    )
    found = StageRunner(Retriever(structure, RetrieverConfig(), store=store, embedder=slow), 1)
    await found.start()
    yield found
    slow.free = True
    slow.let.release(1000)
    await found.close()


async def begun(slow):
    assert await asyncio.to_thread(slow.begun.acquire, timeout=10)


async def test_an_upload_that_nobody_waits_for_stops_and_leaves_nothing(runner, slow, store):
    upload = asyncio.create_task(runner.manage("upsert_documents", "c", LONG))
    await begun(slow)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    slow.free = True
    slow.let.release(1)
    assert await runner.manage("upsert_documents", "d", [{"text": "zebra"}]) == DocumentResult(1, 1, 0)
    assert slow.calls == 1
    with pytest.raises(CollectionNotFound):
        store.describe("c")


async def test_lists_and_embeddings_do_not_wait_for_uploads(runner, slow):
    uploads = [asyncio.create_task(runner.manage("upsert_documents", f"c{number}", LONG)) for number in range(8)]
    await begun(slow)
    async with asyncio.timeout(10):
        assert await runner.manage("list_collections") == []
        assert (await runner.manage("embed_queries", ["zebra"])).tokens == 1
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)
