"""The contract of a store: collections of embedded passages that can be searched by vector and by text.

Stores are plain, synchronous and thread-safe. What all stores share (fusion, scores, filters' meaning, tokenisation)
lives in ``search.py``, ``filters.py`` and ``terms.py``; a store only answers a :class:`Snapshot`'s three questions.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from app.errors import (
    CollectionDamaged,
    CollectionNotFound,
    EmbeddingMismatch,
    InternalError,
    InvalidRequest,
    bounded,
    no_collection,
)
from app.logs import logger
from app.stores.filters import Filter

STAGE = "retriever"
_log = logger(STAGE)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Matrix = npt.NDArray[np.float32]
Scalar = str | float | int | bool


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What is known about a collection. ``fault`` is a sentence when it cannot be read; the counts are then 0."""

    name: str
    dimension: int
    embedder: str
    documents: int = 0
    passages: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class PassageRecord:
    """One passage to store. ``id`` is ``<document id>#<position>``.

    ``vector``: float32 ``(dimension,)``, L2-normalised. ``tokens``: ``(n, dimension)``, kept as float16.
    ``content_hash`` is the document's, the same for all its passages.
    """

    id: str
    document_id: str
    position: int
    text: str
    source: str
    metadata: Mapping[str, Scalar]
    content_hash: str
    vector: Matrix
    tokens: npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """One passage as read back. ``metadata`` is JSON text; ``tokens`` is ``payload.encode_tokens``' bytes."""

    id: str
    text: str
    source: str
    metadata: str
    tokens: bytes


@dataclass(frozen=True, slots=True)
class Ranked:
    """Passages in rank order: ids, and their vectors as float32 ``(n, dimension)``."""

    ids: list[str]
    vectors: Matrix


class Snapshot(Protocol):
    """One consistent view of a collection; writes that land later are not seen."""

    dimension: int

    def nearest(self, vector: Matrix, limit: int, where: Filter | None) -> Ranked:
        """Return the passages nearest to ``vector`` by cosine similarity, nearest first."""
        ...

    def matching(self, terms: Sequence[str], limit: int, where: Filter | None) -> Ranked:
        """Return the passages that hold any of the terms (``terms.tokenize``), best first."""
        ...

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return the passages with these ids, in this order; ids that are not there are left out."""
        ...


class Store(Protocol):
    """A place for collections. Every method raises errors of ``app.errors`` only."""

    def start(self) -> None:
        """Connect. Raises :class:`app.errors.ConfigError` when that cannot be done."""

    def close(self) -> None:
        """Disconnect."""

    def create_collection(self, name: str, dimension: int, embedder: str) -> None:
        """Make an empty collection; one of the same dimension that is there already stays. Raises EmbeddingMismatch."""

    def drop_collection(self, name: str) -> None:
        """Remove a collection, damaged ones included. Raises CollectionNotFound."""

    def list_collections(self, where: Filter | None = None) -> list[CollectionInfo]:
        """Return all collections by name, counting what ``where`` holds for; a damaged one carries its fault."""
        ...

    def describe(self, name: str, where: Filter | None = None) -> CollectionInfo:
        """Return one collection, counting what ``where`` holds for. Raises CollectionNotFound, CollectionDamaged."""
        ...

    def upsert(self, name: str, records: Sequence[PassageRecord]) -> None:
        """Replace the passages of the documents that ``records`` belong to, in one step for readers."""

    def delete_documents(self, name: str, ids: Sequence[str] | None, where: Filter | None = None) -> int:
        """Delete those of the documents (None: of all) that ``where`` holds for; returns how many were there.

        With all their passages and in one step. A document's metadata are those of all its passages.
        """
        ...

    def hashes(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Return document id → content hash for those of ``ids`` that are stored."""
        ...

    def document_ids(self, name: str) -> Iterator[str]:
        """Return the ids of all documents."""
        ...

    def snapshot(self, name: str) -> AbstractContextManager[Snapshot]:
        """Open a consistent view for searching. Raises CollectionNotFound, CollectionDamaged."""
        ...

    def tidy(self, name: str) -> None:
        """Bring indexes up to date and free what old versions hold; cheap when there is little to do."""


def check_name(name: str) -> str:
    """Return a collection's name. Raises InvalidRequest unless it is safe in a path, in SQL and in a URL."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{bounded(name)} is no valid name of a collection: use 1 to 64 of a-z, 0-9, '_' and '-', "
            "beginning with a letter or digit.",
            stage=STAGE,
            param="collection",
        )
    return name


def not_found(name: str) -> CollectionNotFound:
    """Return the error for a collection that does not exist."""
    return no_collection(name, STAGE, "collection")


def damaged(name: str, reason: str) -> CollectionDamaged:
    """Return the error for a collection that cannot be read."""
    return CollectionDamaged(
        f"Collection {name!r} cannot be read ({reason}): restore it, or drop it and ingest its documents again.",
        stage=STAGE,
        param="collection",
    )


def unexpected(error: Exception) -> InternalError:
    """Return the error for what nobody foresaw: it is logged, and says nothing about what is stored."""
    # The type and the place, never the message: it may quote what somebody asked.
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("the store failed with %s\n%s", type(error).__name__, where, extra={"error_type": type(error).__name__})
    return InternalError("The store failed; the log tells where.", STAGE)


def check_dimension(name: str, stored: int, wanted: int) -> None:
    """Raise EmbeddingMismatch unless the collection holds vectors of the wanted size."""
    if stored != wanted:
        raise EmbeddingMismatch(
            f"Collection {name!r} holds vectors of {stored} numbers but the embedder makes {wanted}: "
            "ingest it again with the embedder in use.",
            stage=STAGE,
            param="collection",
        )
