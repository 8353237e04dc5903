"""A shipped fake store: collections in memory, exact search, the reference that real stores are compared with."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import orjson

from app.stores.contract import (
    CollectionInfo,
    Matrix,
    PassageRecord,
    Ranked,
    StoredPassage,
    check_dimension,
    check_name,
    not_found,
)
from app.stores.filters import Filter, matches
from app.stores.payload import encode_tokens
from app.stores.terms import tokenize


class MemoryStore:
    """A :class:`app.stores.contract.Store` in memory. Collections are immutable tuples that writers replace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._infos: dict[str, CollectionInfo] = {}
        self._records: dict[str, tuple[PassageRecord, ...]] = {}

    def start(self) -> None:
        """Connect to nothing."""

    def close(self) -> None:
        """Keep everything: the store lives as long as the object."""

    def create_collection(self, name: str, dimension: int, embedder: str) -> None:
        """Make an empty collection unless it is there."""
        with self._lock:
            found = self._infos.setdefault(check_name(name), CollectionInfo(name, dimension, embedder))
            self._records.setdefault(name, ())
        check_dimension(name, found.dimension, dimension)

    def drop_collection(self, name: str) -> None:
        """Remove a collection."""
        with self._lock:
            self._require(name)
            del self._infos[name], self._records[name]

    def list_collections(self, where: Filter | None = None) -> list[CollectionInfo]:
        """Return all collections by name."""
        return [self.describe(name, where) for name in sorted(self._infos)]

    def describe(self, name: str, where: Filter | None = None) -> CollectionInfo:
        """Return one collection with its counts."""
        info = self._require(name)
        records = [record for record in self._records[name] if matches(where, record.metadata)]
        documents = len({record.document_id for record in records})
        return CollectionInfo(name, info.dimension, info.embedder, documents, len(records))

    def upsert(self, name: str, records: Sequence[PassageRecord]) -> None:
        """Replace the documents that the records belong to."""
        replaced = {record.document_id for record in records}
        self._replace(name, lambda record: record.document_id not in replaced, records)

    def delete_documents(self, name: str, ids: Sequence[str] | None, where: Filter | None = None) -> int:
        """Delete documents by id and condition."""
        gone = None if ids is None else set(ids)

        def stays(record: PassageRecord) -> bool:
            return (gone is not None and record.document_id not in gone) or not matches(where, record.metadata)

        return self._replace(name, stays, ())

    def hashes(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Return the content hashes of the documents that are stored."""
        self._require(name)
        wanted = set(ids)
        return {item.document_id: item.content_hash for item in self._records[name] if item.document_id in wanted}

    def document_ids(self, name: str) -> Iterator[str]:
        """Return the ids of all documents."""
        self._require(name)
        return iter(dict.fromkeys(record.document_id for record in self._records[name]))

    @contextmanager
    def snapshot(self, name: str) -> Iterator[MemorySnapshot]:
        """Open a view of the collection as it is now."""
        info = self._require(name)
        yield MemorySnapshot(info.dimension, self._records[name])

    def tidy(self, name: str) -> None:
        """Check the name: there is nothing to tidy."""
        self._require(name)

    def _require(self, name: str) -> CollectionInfo:
        if check_name(name) not in self._infos:
            raise not_found(name)
        return self._infos[name]

    def _replace(self, name: str, stays: Callable[[PassageRecord], bool], added: Sequence[PassageRecord]) -> int:
        with self._lock:
            self._require(name)
            before = self._records[name]
            kept = [record for record in before if stays(record)]
            self._records[name] = (*kept, *added)
        return len({item.document_id for item in before}) - len({item.document_id for item in kept})


class MemorySnapshot:
    """A view of records that never change."""

    def __init__(self, dimension: int, records: tuple[PassageRecord, ...]) -> None:
        self.dimension = dimension
        self._records = records

    def nearest(self, vector: Matrix, limit: int, where: Filter | None) -> Ranked:
        """Compare with every passage."""
        found = self._filtered(where)
        found.sort(key=lambda record: -float(record.vector @ vector))
        return self._ranked(found[:limit])

    def matching(self, terms: Sequence[str], limit: int, where: Filter | None) -> Ranked:
        """Rank by the sum of term frequency times inverse document frequency."""
        counts = {record.id: Counter(tokenize(record.text)) for record in self._records}
        weights = {term: math.log(1 + len(counts) / (1 + sum(term in c for c in counts.values()))) for term in terms}
        scores = {key: sum(weights[term] * count[term] for term in weights) for key, count in counts.items()}
        found = [record for record in self._filtered(where) if scores[record.id] > 0]
        found.sort(key=lambda record: -scores[record.id])
        return self._ranked(found[:limit])

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return passages by id."""
        by_id = {record.id: record for record in self._records}
        return [_stored(by_id[key]) for key in ids if key in by_id]

    def _filtered(self, where: Filter | None) -> list[PassageRecord]:
        return [record for record in self._records if matches(where, record.metadata)]

    def _ranked(self, records: Sequence[PassageRecord]) -> Ranked:
        vectors = np.array([record.vector for record in records], np.float32).reshape(len(records), self.dimension)
        return Ranked([record.id for record in records], vectors)


def _stored(record: PassageRecord) -> StoredPassage:
    metadata = orjson.dumps(dict(record.metadata)).decode()
    return StoredPassage(record.id, record.text, record.source, metadata, encode_tokens(record.tokens))
