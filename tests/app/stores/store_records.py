"""Records for the stores' tests, and a search in one line."""

from app.stores.contract import PassageRecord
from app.stores.search import Search, search_collection
from app.stores.terms import unique_terms
from app.testing.embedder import FakeEmbedder

KINDS = ("memory", "lancedb", "pgvector", "qdrant")
EMBEDDER = FakeEmbedder(32)


def records(document, *texts, metadata=None, content_hash="h1"):
    encoded = EMBEDDER.encode(texts, "passage", tokens=True)
    return [
        PassageRecord(
            id=f"{document}#{position}",
            document_id=document,
            position=position,
            text=text,
            source=f"{document}.md",
            metadata=metadata or {},
            content_hash=content_hash,
            vector=encoded.vectors[position],
            tokens=encoded.tokens[encoded.offsets[position] : encoded.offsets[position + 1]],
        )
        for position, text in enumerate(texts)
    ]


def fill(store, *documents, name="c"):
    store.create_collection(name, 32, "fake")
    for document in documents:
        store.upsert(name, document)


def find(store, question, name="c", **options):
    vector = EMBEDDER.encode([question], "query").vectors[0]
    search = Search(vector, tuple(unique_terms(question, 64)), options.pop("limit", 10), **options)
    with store.snapshot(name) as snapshot:
        return search_collection(snapshot, name, search)


def names(store):
    return [info.name for info in store.list_collections() if info.name != "filters"]


def ids(hits):
    return [hit.passage.id for hit in hits]
