"""The retriever: embeds questions, searches collections, returns the passages with their token embeddings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.blank import is_blank
from app.config.base import Config
from app.config.embedder import EmbedderConfig
from app.config.retrieval import ChunkingConfig, RetrieverConfig, StoreConfig
from app.embedders.contract import Embedder, Encoded, ImageEmbedder
from app.errors import BatonError, ConfigError, ContextLengthExceeded, InvalidRequest, bounded
from app.images import image_bytes
from app.ingestion.indexer import Indexer
from app.jobs import DocumentResult, Embedded
from app.messages import RetrievalQuery, Retrieved
from app.stores.contract import STAGE, CollectionInfo, Matrix, Store, check_name, not_found, unexpected
from app.stores.filters import Filter, Never, parse_filter
from app.stores.payload import Hit, build_table
from app.stores.search import Search, late_interaction, merge_hits, search_collection
from app.stores.tenants import as_the_tenant_knows, tenant_filter, within_tenant
from app.stores.terms import unique_terms

_SEARCH_THREADS = 8
_MAX_TERMS = 64
_MAX_EMBED_TEXTS = 2048
# A question longer than this many characters a token of the window is cut before any tokenizer sees it.
_CHARS_PER_TOKEN = 16
# A question that overflows the window keeps this many characters a token, half of them from each end; halved until
# the embedder takes all of it.
_KEPT_CHARS_PER_TOKEN = 4


class RetrieverStructure(Config):
    """What shapes the retriever: a change restarts it."""

    store: StoreConfig = StoreConfig()
    """Where the collections live."""
    embedder: EmbedderConfig
    """Which encoder turns questions and passages into vectors; collections built with another one are refused."""
    chunking: ChunkingConfig = ChunkingConfig()
    """How documents that come in over HTTP are cut."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A query within its limits, with its filter parsed; ``blank`` when there is nothing to look for."""

    query: RetrievalQuery
    where: Filter | Never | None
    blank: bool


class Retriever:
    """The stage :class:`app.stages.contract.Stage`; ``store`` and ``embedder`` replace those of the structure."""

    name = STAGE

    def __init__(
        self,
        structure: RetrieverStructure,
        settings: RetrieverConfig,
        *,
        store: Store | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._structure = structure
        self._settings = settings
        self._store = store
        self._embedder = embedder
        self._indexer: Indexer | None = None
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Load the embedder and open the store. Raises ConfigError."""
        from app.embedders.factory import build_embedder
        from app.stores.build import build_store

        self._embedder = self._embedder or build_embedder(self._structure.embedder)
        self._store = self._store or build_store(self._structure.store)
        self._embedder.start()
        self._store.start()
        self._indexer = Indexer(self._store, self._embedder, self._structure.chunking)
        self._pool = ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="search")

    def configure(self, settings: Any) -> None:
        """Take new settings, a :class:`RetrieverConfig` or its JSON. Raises ConfigError and keeps the old ones."""
        self._settings = (
            settings if isinstance(settings, RetrieverConfig) else RetrieverConfig.parse(settings, "retriever")
        )

    def close(self) -> None:
        """Release the store, the embedder and the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        for part in (self._indexer, self._store, self._embedder):
            if part is not None:
                part.close()

    # --- questions --------------------------------------------------------------------------------------------------

    def run(self, request: RetrievalQuery, payload: Any = None) -> Retrieved:
        """Answer one question. Raises InvalidRequest, CollectionNotFound, EmbeddingMismatch, CollectionDamaged."""
        result = self.run_batch([request])[0]
        if isinstance(result, Exception):
            raise result
        return result

    def run_batch(self, requests: Sequence[RetrievalQuery]) -> list[Retrieved | Exception]:
        """Answer questions that came together, with one call of the embedder; a fault stays with its question."""
        checked = [self._checked(request) for request in requests]
        good = [item for item in checked if isinstance(item, _Checked)]
        asked = [item for item in good if not item.blank]
        started = time.perf_counter()
        encoded = self._encode([item.query.text for item in asked], any(i.query.late_interaction for i in asked))
        embed_ms = (time.perf_counter() - started) * 1000
        searches = {id(item): self._begun(item, encoded, index) for index, item in enumerate(asked)}
        results = [
            self._finish(item, searches.get(id(item)), embed_ms) if isinstance(item, _Checked) else item
            for item in checked
        ]
        return [_as_asked(result) if isinstance(result, BatonError) else result for result in results]

    def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """Embed texts as questions, whole. Raises ContextLengthExceeded naming the text that overflows the window."""
        if len(texts) > _MAX_EMBED_TEXTS:
            raise InvalidRequest(f"input must hold at most {_MAX_EMBED_TEXTS} texts.", STAGE, "input")
        embedder: Embedder = self._require(self._embedder)
        counts = embedder.count_tokens(texts, "query")
        for place, count in enumerate(counts):
            if count > embedder.max_tokens:
                raise ContextLengthExceeded(
                    f"The embedding model's context length is {embedder.max_tokens} tokens and input {place} takes "
                    f"at least {count}: shorten it or send it in parts.",
                    STAGE,
                    "input",
                )
        return Embedded(self._encode(list(texts), tokens=False).encoded.vectors, sum(counts))

    def _checked(self, query: RetrievalQuery) -> _Checked | Exception:
        try:
            return self._check(query)
        except BatonError as error:
            return error

    def _check(self, query: RetrievalQuery) -> _Checked:
        settings = self._settings
        _in_range("top_k", query.top_k, settings.max_top_k)
        _in_range("candidates", query.candidates, settings.max_candidates)
        if len(query.collections) > settings.max_collections:
            raise InvalidRequest(
                f"At most {settings.max_collections} collections may be searched.", STAGE, "collection"
            )
        if query.mode not in ("hybrid", "vector", "text"):
            raise InvalidRequest(f"mode {bounded(query.mode)} is not hybrid, vector or text.", STAGE, "mode")
        for name in query.collections:
            check_name(name)
        return _Checked(query, within_tenant(parse_filter(query.filter), query.tenant), is_blank(query.text))

    def _begun(self, item: _Checked, batch: _Questions, index: int) -> _Running | BatonError:
        try:
            return self._begin(item, batch, index)
        except BatonError as error:  # of this question's images
            return error

    def _begin(self, item: _Checked, batch: _Questions, index: int) -> _Running:
        """Start one search per collection, in threads when there are several."""
        query = item.query
        search = Search(
            vector=self._seen(query, batch.encoded.vectors[index]),
            terms=tuple(unique_terms(batch.searched[index], _MAX_TERMS)),
            limit=max(query.candidates, query.top_k),
            mode=query.mode,
            where=item.where,
            min_score=query.min_score,
        )
        names = list(dict.fromkeys(query.collections))
        pool = self._require(self._pool)
        return _Running(
            started=time.perf_counter(),
            futures=[pool.submit(self._search, name, search, query.tenant) for name in names],
            tokens=batch.tokens_of(index) if query.late_interaction else None,
            limit=search.limit,
            truncated=bool(batch.truncated[index]),
        )

    def _seen(self, query: RetrievalQuery, text: Matrix) -> Matrix:
        """Return the question's vector: with images, where the embedder reads them, the mean of text and images."""
        embedder = self._require(self._embedder)
        if not query.images or not isinstance(embedder, ImageEmbedder):
            return text
        mean = np.vstack([text, embedder.encode_images([image_bytes(uri) for uri in query.images])]).mean(axis=0)
        unit: Matrix = (mean / max(float(np.linalg.norm(mean)), 1e-9)).astype(np.float32)
        return unit

    def _search(self, name: str, search: Search, tenant: str) -> list[Hit]:
        with self._require(self._store).snapshot(name) as snapshot:
            hits = search_collection(snapshot, name, search)
        return [replace(hit, passage=as_the_tenant_knows(hit.passage, tenant)) for hit in hits] if tenant else hits

    def _finish(self, item: _Checked, running: _Running | BatonError | None, embed_ms: float) -> Retrieved | Exception:
        query, dimension = item.query, self._require(self._embedder).dimension
        if isinstance(running, BatonError):
            return running
        if running is None:
            return self._blank(query, dimension)
        try:
            hits = merge_hits([future.result() for future in running.futures], query.mode, running.limit)
            if running.tokens is not None:
                hits = late_interaction(hits, running.tokens, dimension)
            search_ms = (time.perf_counter() - running.started) * 1000
            return Retrieved(
                passages=build_table(hits, dimension),
                top_k=query.top_k,
                question_truncated=running.truncated,
                milliseconds={"embed": embed_ms, "search": search_ms},
            )
        except BatonError as error:
            return error
        except Exception as error:
            return unexpected(error)

    def _blank(self, query: RetrievalQuery, dimension: int) -> Retrieved | Exception:
        """Return nothing for a blank question; an unknown collection stays an error."""
        try:
            for name in query.collections:
                with self._require(self._store).snapshot(name):
                    pass
        except BatonError as error:
            return error
        return Retrieved(build_table([], dimension), query.top_k, milliseconds={"embed": 0.0, "search": 0.0})

    # --- embedding --------------------------------------------------------------------------------------------------

    def _encode(self, texts: list[str], tokens: bool) -> _Questions:
        """Embed questions; one that overflows the window is embedded by its head and its tail."""
        embedder: Embedder = self._require(self._embedder)
        if not texts:
            return _Questions(_nothing(embedder.dimension), [], np.empty(0, np.bool_))
        searched = [_ends(text, embedder.max_tokens * _CHARS_PER_TOKEN) for text in texts]
        cut = np.array([len(short) < len(text) for short, text in zip(searched, texts, strict=True)], np.bool_)
        encoded = embedder.encode(searched, "query", tokens)
        embedded, keep = list(searched), embedder.max_tokens * _KEPT_CHARS_PER_TOKEN
        while encoded.truncated.any() and keep > 1:
            cut |= encoded.truncated
            embedded = [
                _ends(text, keep) if over else text for text, over in zip(embedded, encoded.truncated, strict=True)
            ]
            encoded, keep = embedder.encode(embedded, "query", tokens), keep // 2
        return _Questions(encoded, searched, cut | encoded.truncated)

    # --- collections ------------------------------------------------------------------------------------------------

    def list_collections(self, tenant: str = "") -> list[dict[str, Any]]:
        """Return ``{"name", "documents", "passages", "dimension", "embedder"}`` per collection, and its ``fault``.

        For a tenant there are those that hold documents of its own, and only these are counted.
        """
        infos = self._require(self._store).list_collections(tenant_filter(tenant))
        return [_as_dict(info) for info in infos if info.documents or not tenant]

    def delete_collection(self, name: str, tenant: str = "") -> None:
        """Drop a collection; a tenant's documents in it, where there is one. Raises CollectionNotFound."""
        if not tenant:
            self._ready_indexer().drop(name)
        elif not self._ready_indexer().delete_all(name, tenant):
            raise not_found(name)

    def delete_documents(self, name: str, ids: Sequence[str], tenant: str = "") -> int:
        """Delete documents by id; returns how many were there."""
        return self._ready_indexer().delete(name, ids, tenant)

    def upsert_documents(self, name: str, documents: Sequence[Mapping[str, Any]], tenant: str = "") -> DocumentResult:
        """Chunk, embed and store documents, atomically for readers; makes the collection when it is not there."""
        return self._ready_indexer().upsert(name, documents, tenant)

    def status(self) -> dict[str, str]:
        """Return collection → what is wrong with it; empty when all can be searched with this embedder."""
        embedder = self._require(self._embedder)
        faults = {}
        for info in self._require(self._store).list_collections():
            if info.fault:
                faults[info.name] = info.fault
            elif info.dimension != embedder.dimension:
                faults[info.name] = (
                    f"holds vectors of {info.dimension} numbers, the embedder makes {embedder.dimension}"
                )
            elif info.embedder and info.embedder != embedder.name:
                faults[info.name] = f"was built with the embedder {bounded(info.embedder)}, not {embedder.name!r}"
        return faults

    def _ready_indexer(self) -> Indexer:
        indexer: Indexer = self._require(self._indexer)
        return indexer

    @staticmethod
    def _require(part: Any) -> Any:
        if part is None:
            raise ConfigError("the retriever is not started", STAGE)
        return part


@dataclass(frozen=True, slots=True)
class _Questions:
    """Questions embedded together: ``searched`` is what full-text search reads, ``truncated`` what did not fit."""

    encoded: Encoded
    searched: list[str]
    truncated: np.ndarray[Any, np.dtype[np.bool_]]

    def tokens_of(self, index: int) -> Matrix:
        return self.encoded.tokens[self.encoded.offsets[index] : self.encoded.offsets[index + 1]]


@dataclass(frozen=True, slots=True)
class _Running:
    """A question whose searches are under way."""

    started: float
    futures: list[Future[list[Hit]]]
    tokens: Matrix | None
    limit: int
    truncated: bool


def _nothing(dimension: int) -> Encoded:
    rows = np.empty((0, dimension), np.float32)
    return Encoded(rows, rows, np.zeros(1, np.int64), np.empty(0, np.bool_))


def _ends(text: str, limit: int) -> str:
    """Return the head and the tail of a text longer than ``limit`` characters, cut at blanks where there are any."""
    if len(text) <= limit:
        return text
    half = limit // 2
    head, tail = text[:half], text[len(text) - half :]
    return f"{head.rsplit(' ', 1)[0]} {tail.split(' ', 1)[-1]}"


def _as_asked(error: BatonError) -> BatonError:
    """Name a collection's field as questions spell it."""
    if error.param != "collection":
        return error
    return type(error)(error.message, error.stage, "rag.collection", error.retry_after_seconds)


def _in_range(field: str, value: Any, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidRequest(f"{field} must be a whole number from 1 to {limit} (got {bounded(value)}).", STAGE, field)


def _as_dict(info: CollectionInfo) -> dict[str, Any]:
    known = {
        "name": info.name,
        "documents": info.documents,
        "passages": info.passages,
        "dimension": info.dimension,
        "embedder": info.embedder,
    }
    return known | ({"fault": info.fault} if info.fault else {})
