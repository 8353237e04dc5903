"""The indexer: checked documents in, embedded passages in the store."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from app.config.retrieval import ChunkingConfig
from app.embedders.contract import Embedder
from app.errors import CollectionNotFound, EmbeddingMismatch, InvalidRequest
from app.ingestion.chunking import halve, split_document
from app.ingestion.documents import MAX_ID_CHARS, Document, parse_document
from app.jobs import DocumentResult
from app.stopping import check_wanted
from app.stores.contract import STAGE, PassageRecord, Store, check_name
from app.stores.payload import STORED_DTYPE
from app.stores.tenants import stamped, stored_id, tenant_filter

MAX_DOCUMENTS = 1000
MAX_IDS = 10_000
_ENCODE_TEXTS = 64


class Indexer:
    """Cuts, embeds and stores documents. Thread-safe as far as its store and embedder are."""

    def __init__(self, store: Store, embedder: Embedder, config: ChunkingConfig) -> None:
        self._store = store
        self._embedder = embedder
        self._config = config
        # One writer at a time: two upserts of one document would otherwise both find it missing.
        self._writing = threading.Lock()
        # First come, first served: uploads side by side get their batches embedded in turn, however long one is.
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="baton-indexer")

    def upsert(self, collection: str, documents: Sequence[Mapping[str, Any]], tenant: str = "") -> DocumentResult:
        """Store up to ``MAX_DOCUMENTS`` documents, all or none; the collection is made when it is not there.

        ``tenant`` is whose they are from then on. Documents stored with the same content are skipped; of two with one
        id the later counts. Raises InvalidRequest naming the document, EmbeddingMismatch, CollectionDamaged.
        """
        if not isinstance(documents, list | tuple) or len(documents) > MAX_DOCUMENTS:
            raise InvalidRequest(f"documents must be a list of at most {MAX_DOCUMENTS}.", STAGE, "documents")
        parsed = [parse_document(raw, f"documents[{index}]") for index, raw in enumerate(documents)]
        return self.upsert_parsed(collection, [stamped(document, tenant) for document in parsed])

    def upsert_parsed(self, collection: str, documents: Sequence[Document]) -> DocumentResult:
        """Store documents that are checked already; see :meth:`upsert`.

        Embedding takes seconds to minutes and holds up no other writer: what is stored is looked at again before the
        write, and what somebody changed in the meantime is embedded as well.
        """
        latest = {document.id: document for document in documents}
        hashes = {key: document.content_hash(self._salt()) for key, document in latest.items()}
        records: dict[str, list[PassageRecord]] = {}
        missing = self._changed(collection, hashes)
        while True:
            records |= self._records([latest[key] for key in missing], hashes)
            with self._writing:
                changed = self._changed(collection, hashes)
                missing = [key for key in changed if key not in records]
                if not missing:
                    passages = [record for key in changed for record in records[key]]
                    self._write(collection, passages)
                    return DocumentResult(len(changed), len(passages), len(latest) - len(changed))

    def _changed(self, collection: str, hashes: Mapping[str, str]) -> list[str]:
        """Return the ids of documents that are not stored as they are here. Raises EmbeddingMismatch."""
        try:
            self._check_embedder(check_name(collection))
        except CollectionNotFound:
            return list(hashes)
        stored = self._store.hashes(collection, list(hashes)) if hashes else {}
        return [key for key, found in hashes.items() if stored.get(key) != found]

    def _write(self, collection: str, records: Sequence[PassageRecord]) -> None:
        self.prepare(collection)
        if records:
            self._store.upsert(collection, records)
            self._store.tidy(collection)

    def prepare(self, collection: str) -> None:
        """Make the collection if it is not there. Raises EmbeddingMismatch when it was built with another embedder."""
        self._store.create_collection(check_name(collection), self._embedder.dimension, self._embedder.name)
        self._check_embedder(collection)

    def _check_embedder(self, collection: str) -> None:
        made_with = self._store.describe(collection).embedder
        if made_with and made_with != self._embedder.name:
            raise EmbeddingMismatch(
                f"Collection {collection!r} was built with the embedder '{made_with}', not '{self._embedder.name}': "
                "use another collection, or drop it and ingest all its documents again.",
                STAGE,
                "collection",
            )

    def delete(self, collection: str, ids: Sequence[str], tenant: str = "") -> int:
        """Delete the tenant's documents by id; returns how many were there.

        Raises InvalidRequest, CollectionNotFound.
        """
        if not isinstance(ids, list | tuple) or len(ids) > MAX_IDS:
            raise InvalidRequest(f"ids must be a list of at most {MAX_IDS}.", STAGE, "ids")
        if not all(isinstance(key, str) and 0 < len(key) <= MAX_ID_CHARS for key in ids):
            raise InvalidRequest(f"Each of ids must be text of 1 to {MAX_ID_CHARS} characters.", STAGE, "ids")
        # An id that no document can have is not there; a store might refuse its characters.
        named = [stored_id(key, tenant) for key in ids if key.isprintable()]
        return self._delete(collection, named, tenant)

    def delete_all(self, collection: str, tenant: str) -> int:
        """Delete all of the tenant's documents; returns how many there were. Raises CollectionNotFound."""
        return self._delete(collection, None, tenant)

    def drop(self, collection: str) -> None:
        """Drop a collection. Raises CollectionNotFound."""
        with self._writing:
            self._store.drop_collection(check_name(collection))

    def close(self) -> None:
        """Release the thread."""
        self._turns.shutdown(wait=False, cancel_futures=True)

    def _delete(self, collection: str, ids: Sequence[str] | None, tenant: str) -> int:
        with self._writing:
            count = self._store.delete_documents(check_name(collection), ids, tenant_filter(tenant))
            self._store.tidy(collection)
        return count

    def _salt(self) -> str:
        return f"1|{self._embedder.name}|{self._config.model_dump_json()}"

    def _records(self, documents: Sequence[Document], hashes: Mapping[str, str]) -> dict[str, list[PassageRecord]]:
        """Embed documents, in turn with other uploads, and return the passages of each."""
        pending = [(doc, text) for doc in documents for text in split_document(doc.text, doc.title, self._config)]
        records: dict[str, list[PassageRecord]] = {document.id: [] for document in documents}
        for start in range(0, len(pending), _ENCODE_TEXTS):
            check_wanted(STAGE)
            encoded = self._turns.submit(self._encode, pending[start : start + _ENCODE_TEXTS]).result()
            for document, text, vector, tokens in encoded:
                position = len(records[document.id])
                records[document.id].append(
                    PassageRecord(
                        id=f"{document.id}#{position}",
                        document_id=document.id,
                        position=position,
                        text=text,
                        source=document.source,
                        metadata=document.metadata,
                        content_hash=hashes[document.id],
                        vector=vector,
                        tokens=tokens,
                    )
                )
        check_wanted(STAGE)
        return records

    def _encode(self, passages: list[tuple[Document, str]]) -> list[tuple[Document, str, Any, Any]]:
        """Embed passages; one that overflows the embedder's window is halved until all of it fits."""
        encoded = self._embedder.encode([text for _, text in passages], "passage", tokens=True)
        result = []
        for index, (document, text) in enumerate(passages):
            halves = halve(text) if encoded.truncated[index] else [text]
            if len(halves) > 1:
                result += self._encode([(document, half) for half in halves])
                continue
            tokens = encoded.tokens[encoded.offsets[index] : encoded.offsets[index + 1]]
            result.append((document, text, encoded.vectors[index], np.asarray(tokens, STORED_DTYPE)))
        return result
