"""Collections in Qdrant: a server by URL, or its local mode in a folder or in memory.

Local mode is not thread-safe, so one lock covers each write and each search: readers see whole writes. A server has no
transactions: an upsert writes the new passages over the old ones and then removes what is stale, so a reader may for an
instant see some of both, and never misses a document.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import orjson

from app.config.retrieval import StoreConfig
from app.errors import BatonError, ConfigError, StageUnavailable
from app.stores.contract import (
    STAGE,
    CollectionInfo,
    Matrix,
    PassageRecord,
    Ranked,
    StoredPassage,
    check_dimension,
    check_name,
    damaged,
    not_found,
    unexpected,
)
from app.stores.filters import RESERVED_KEY, Filter
from app.stores.payload import encode_tokens
from app.stores.qdrant_filters import compile_filter, document_filter, facet, facets, query_terms, term_weights
from app.stores.secrets import read_secret
from app.stores.terms import tokenize

_PREFIX = "baton_"
_VECTOR = "passage"
_TERMS = "terms"
_PAGE = 1000
_POINTS = 256
_TIMEOUT_SECONDS = 30
_RETRY_AFTER_SECONDS = 5
_NOT_UNDERSTOOD = frozenset({400, 422})
_NAMESPACE = uuid.UUID("6f1d7a52-6f5e-4f0e-9d8e-6a1b7f0c2b11")


class QdrantStore:
    """A :class:`app.stores.contract.Store` on Qdrant."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._local = "://" not in config.uri
        self._lock: AbstractContextManager[Any] = threading.RLock() if self._local else nullcontext()
        self._client: Any = None

    def start(self) -> None:
        """Connect to the server, or open the folder."""
        from qdrant_client import QdrantClient

        secret = read_secret(self._config)
        uri = self._config.uri
        try:
            if uri == ":memory:":
                self._client = QdrantClient(uri)
            elif self._local:
                self._client = QdrantClient(path=uri)
            else:
                self._client = QdrantClient(
                    url=uri, api_key=secret, timeout=_TIMEOUT_SECONDS, check_compatibility=False
                )
            self._client.get_collections()
        except Exception as error:
            raise ConfigError(f"store.uri: Qdrant cannot be used ({type(error).__name__})", STAGE) from error

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- collections ------------------------------------------------------------------------------------------------

    def create_collection(self, name: str, dimension: int, embedder: str) -> None:
        """Make an empty collection; one that is there stays."""
        from qdrant_client import models

        with self._guarded(name):
            if not self._client.collection_exists(_PREFIX + name):
                self._client.create_collection(
                    _PREFIX + name,
                    vectors_config={_VECTOR: models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
                    sparse_vectors_config={_TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                    metadata={"embedder": embedder},
                )
                self._index_documents(name)
            found = self._info(name)
        check_dimension(name, found.dimension, dimension)

    def drop_collection(self, name: str) -> None:
        """Drop the collection."""
        with self._guarded(name):
            self._require(name)
            self._client.delete_collection(_PREFIX + name)

    def list_collections(self, where: Filter | None = None) -> list[CollectionInfo]:
        """Return the collections that carry our prefix, with their counts."""
        with self._guarded():
            found = [item.name for item in self._client.get_collections().collections]
        names = sorted(name.removeprefix(_PREFIX) for name in found if name.startswith(_PREFIX))
        return [self._describe_any(name, where) for name in names]

    def describe(self, name: str, where: Filter | None = None) -> CollectionInfo:
        """Count the collection's points."""
        with self._guarded(name):
            info = self._info(name)
            documents = self._count(name, document_filter(None, where))
            passages = self._count(name, compile_filter(where))
        return CollectionInfo(name, info.dimension, info.embedder, documents, passages)

    def tidy(self, name: str) -> None:
        """Check the name: Qdrant optimises by itself."""
        with self._guarded(name):
            self._require(name)

    # --- documents --------------------------------------------------------------------------------------------------

    def upsert(self, name: str, records: Sequence[PassageRecord]) -> None:
        """Write the new passages, then remove what their documents no longer hold."""
        from qdrant_client import models

        points = [_point(record) for record in records]
        documents = list(dict.fromkeys(record.document_id for record in records))
        kept = [models.HasIdCondition(has_id=[point.id for point in points])]
        condition = document_filter(documents, first_only=False)
        stale = models.Filter(must=condition.must, must_not=kept)
        with self._guarded(name):
            self._require(name)
            for start in range(0, len(points), _POINTS):
                self._client.upsert(_PREFIX + name, points[start : start + _POINTS], wait=True)
            self._client.delete(_PREFIX + name, models.FilterSelector(filter=stale), wait=True)

    def delete_documents(self, name: str, ids: Sequence[str] | None, where: Filter | None = None) -> int:
        """Delete the points of documents."""
        from qdrant_client import models

        with self._guarded(name):
            self._require(name)
            if ids is not None and not ids:
                return 0
            count = self._count(name, document_filter(ids, where))
            selector = models.FilterSelector(filter=document_filter(ids, where, first_only=False))
            self._client.delete(_PREFIX + name, selector, wait=True)
            return count

    def hashes(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Look the documents up by id."""
        with self._guarded(name):
            self._require(name)
            rows = self._scroll(name, document_filter(ids), ["document_id", "content_hash"]) if ids else []
            return {row["document_id"]: row["content_hash"] for row in rows}

    def document_ids(self, name: str) -> Iterator[str]:
        """Scan the first passages of all documents."""
        with self._guarded(name):
            self._require(name)
            return iter([row["document_id"] for row in self._scroll(name, document_filter(None), ["document_id"])])

    @contextmanager
    def snapshot(self, name: str) -> Iterator[QdrantSnapshot]:
        """Hold off writers (local mode) while the collection is searched."""
        with self._guarded(name):
            yield QdrantSnapshot(self._client, _PREFIX + name, self._info(name).dimension)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _require(self, name: str) -> None:
        if not self._client.collection_exists(_PREFIX + name):
            raise not_found(name)

    def _info(self, name: str) -> CollectionInfo:
        self._require(name)
        config = self._client.get_collection(_PREFIX + name).config
        vectors = config.params.vectors
        if not isinstance(vectors, dict) or _VECTOR not in vectors:
            raise damaged(name, "it was not made by Baton")
        return CollectionInfo(name, vectors[_VECTOR].size, str((config.metadata or {}).get("embedder", "")))

    def _describe_any(self, name: str, where: Filter | None) -> CollectionInfo:
        try:
            return self.describe(name, where)
        except BatonError as error:
            return CollectionInfo(name, 0, "", fault=error.message)

    def _count(self, name: str, condition: Any) -> int:
        return int(self._client.count(_PREFIX + name, count_filter=condition, exact=True).count)

    def _scroll(self, name: str, condition: Any, fields: list[str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        offset = None
        while True:
            points, offset = self._client.scroll(
                _PREFIX + name, scroll_filter=condition, limit=_PAGE, offset=offset, with_payload=fields
            )
            rows += [point.payload for point in points]
            if offset is None:
                return rows

    def _index_documents(self, name: str) -> None:
        """Index the payload that documents and tenants are found by; local mode has no payload indexes."""
        if not self._local:
            self._client.create_payload_index(_PREFIX + name, "document_id", field_schema="keyword")
            self._client.create_payload_index(_PREFIX + name, "position", field_schema="integer")
            self._client.create_payload_index(_PREFIX + name, facet(RESERVED_KEY, ""), field_schema="keyword")

    @contextmanager
    def _guarded(self, name: str | None = None) -> Iterator[None]:
        """Check a collection's name, lock local mode, and turn the client's errors into ours."""
        from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

        if name is not None:
            check_name(name)
        try:
            with self._lock:
                yield
        except BatonError:
            raise
        except ApiException as error:
            if isinstance(error, UnexpectedResponse) and error.status_code in _NOT_UNDERSTOOD:
                raise unexpected(error) from error
            sentence = f"Qdrant does not answer ({type(error).__name__})"
            raise StageUnavailable(sentence, STAGE, retry_after_seconds=_RETRY_AFTER_SECONDS) from error
        except Exception as error:
            raise unexpected(error) from error


class QdrantSnapshot:
    """One collection, searched under the store's lock."""

    def __init__(self, client: Any, name: str, dimension: int) -> None:
        self.dimension = dimension
        self._client = client
        self._name = name

    def nearest(self, vector: Matrix, limit: int, where: Filter | None) -> Ranked:
        """Search by vector."""
        return self._ranked(vector.tolist(), _VECTOR, limit, where)

    def matching(self, terms: Sequence[str], limit: int, where: Filter | None) -> Ranked:
        """Search by the sparse vectors of terms, weighted by rarity at the server."""
        return self._ranked(query_terms(terms), _TERMS, limit, where)

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Read passages by id."""
        fields = ["id", "text", "source", "metadata", "tokens"]
        points = self._client.retrieve(self._name, [_point_id(key) for key in ids], with_payload=fields)
        by_id = {point.payload["id"]: _stored(point.payload) for point in points}
        return [by_id[key] for key in ids if key in by_id]

    def _ranked(self, query: Any, using: str, limit: int, where: Filter | None) -> Ranked:
        points = self._client.query_points(
            self._name,
            query=query,
            using=using,
            query_filter=compile_filter(where),
            limit=limit,
            with_payload=["id"],
            with_vectors=[_VECTOR],
        ).points
        vectors = np.array([point.vector[_VECTOR] for point in points], np.float32).reshape(len(points), self.dimension)
        return Ranked([point.payload["id"] for point in points], vectors)


def _point_id(passage: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, passage))


def _point(record: PassageRecord) -> Any:
    from qdrant_client import models

    return models.PointStruct(
        id=_point_id(record.id),
        vector={_VECTOR: record.vector.tolist(), _TERMS: term_weights(tokenize(record.text))},
        payload={
            "id": record.id,
            "document_id": record.document_id,
            "position": record.position,
            "text": record.text,
            "source": record.source,
            "metadata": orjson.dumps(dict(record.metadata)).decode(),
            "facets": facets(record.metadata),
            "content_hash": record.content_hash,
            "tokens": base64.b64encode(encode_tokens(record.tokens)).decode(),
        },
    )


def _stored(payload: dict[str, Any]) -> StoredPassage:
    tokens = base64.b64decode(payload["tokens"])
    return StoredPassage(payload["id"], payload["text"], payload["source"], payload["metadata"], tokens)
