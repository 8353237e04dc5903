"""Collections as LanceDB tables, in a folder or on object storage: the embedded default.

A table's versions make writes atomic for readers: an opened table is one version, and each write is one commit.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from app.config.retrieval import StoreConfig
from app.errors import BatonError, ConfigError
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
from app.stores.filters import Filter
from app.stores.lancedb_sql import compile_filter, one_of
from app.stores.payload import encode_tokens
from app.stores.terms import tokenize

_INFO = b"baton"
# How LanceDB's errors begin when a file is missing, cut short or overwritten: its types tell nothing. What quotes a
# caller's filter begins otherwise.
_DAMAGE = re.compile(
    r"(?:lance error|External error): (?:LanceError\((?:IO|Arrow)\): .*?)?"
    r"(?:Not found: |Invalid range |file size is too small|does not have sufficient data|failed to decode |"
    r"Invalid scalar value buffer)"
    r"|(?:Invalid input, |External error: Invalid user input: )"
    r"(?:file does not appear to be a Lance file|Column \d+ is missing its encoding)"
)
_COLUMNS = ("id", "document_id", "position", "text", "terms", "source", "metadata", "content_hash", "vector", "tokens")
# Readers hold a version for one search; a replica that lags by more than this has long missed its deadline.
_KEEP_VERSIONS = timedelta(minutes=10)
# Below this many passages a scan of all vectors is quicker than an index, and exact.
_INDEX_FROM_PASSAGES = 100_000
_PROBES = 32
# Tidying costs commits of its own; it waits until this much is unindexed or this many writes are scattered.
_LOOSE_PASSAGES = 512
_LOOSE_WRITES = 12
_ID_BATCH = 1000


class LanceStore:
    """A :class:`app.stores.contract.Store` on LanceDB.

    In a local folder writers of several processes queue up behind a lock file. On object storage LanceDB retries
    commits that meet; let one process write a collection at a time there.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        keep_versions: timedelta = _KEEP_VERSIONS,
        index_from_passages: int = _INDEX_FROM_PASSAGES,
    ) -> None:
        self._config = config
        self._keep_versions = keep_versions
        self._index_from_passages = index_from_passages
        self._folder = None if "://" in config.uri else Path(config.uri)
        self._lock = threading.Lock()
        self._writes: Counter[str] = Counter()
        self._db: Any = None

    def start(self) -> None:
        """Open the folder (made when missing) or the object store."""
        import lancedb

        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._db = lancedb.connect(self._config.uri, storage_options=self._config.storage_options or None)
        except Exception as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ConfigError(f"store.uri: {self._config.uri} cannot be opened ({reason})", STAGE) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._db = None

    # --- collections ------------------------------------------------------------------------------------------------

    def create_collection(self, name: str, dimension: int, embedder: str) -> None:
        """Make an empty table with its full-text index; one that is there stays."""
        with self._written(check_name(name)):
            if name in self._names():
                found = _describe(self._open(name), name)
            else:
                table = self._db.create_table(name, schema=_schema(dimension, embedder))
                _index_text(table)
                return
        check_dimension(name, found.dimension, dimension)

    def drop_collection(self, name: str) -> None:
        """Drop the table; what is left of a damaged one in a local folder is removed too."""
        with self._written(check_name(name)):
            if name not in self._names():
                raise not_found(name)
            if self._folder is None:
                self._db.drop_table(name)
            else:
                self._db.drop_table(name, ignore_missing=True)
                shutil.rmtree(self._folder / f"{name}.lance", ignore_errors=True)

    def list_collections(self, where: Filter | None = None) -> list[CollectionInfo]:
        """Return all tables with a collection's name."""
        return [self._describe_any(name, where) for name in self._names()]

    def describe(self, name: str, where: Filter | None = None) -> CollectionInfo:
        """Return one collection with its counts."""
        with _translated(name):
            return _counted(self._open(name), name, where)

    def tidy(self, name: str) -> None:
        """Index what is new, merge small files, drop versions older than ten minutes."""
        with self._written(check_name(name)):
            table = self._open(name)
            indexes = {index.columns[0]: index for index in table.list_indices()}
            if "terms" not in indexes:
                _index_text(table)
            if "vector" not in indexes and table.count_rows() >= self._index_from_passages:
                _index_vectors(table)
            loose = getattr(indexes.get("terms"), "num_unindexed_rows", 0) or 0
            if loose >= _LOOSE_PASSAGES or self._writes[name] >= _LOOSE_WRITES:
                table.optimize(cleanup_older_than=self._keep_versions)
                self._writes[name] = 0

    # --- documents --------------------------------------------------------------------------------------------------

    def upsert(self, name: str, records: Sequence[PassageRecord]) -> None:
        """Merge the passages in one commit that also deletes what their documents no longer hold."""
        documents = list(dict.fromkeys(record.document_id for record in records))
        with self._written(check_name(name)):
            table = self._open(name)
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge = merge.when_not_matched_by_source_delete(one_of("document_id", documents))
            merge.execute(_rows(records, table.schema))
            self._writes[name] += 1

    def delete_documents(self, name: str, ids: Sequence[str] | None, where: Filter | None = None) -> int:
        """Delete the passages of documents in one commit."""
        with self._written(check_name(name)):
            table = self._open(name)
            if ids is not None and not ids:
                return 0
            condition = " AND ".join([*([one_of("document_id", list(ids))] if ids else []), *_conditions(where)])
            count = int(table.count_rows(" AND ".join(["position = 0", condition or "true"])))
            if count:
                table.delete(condition or "true")
                self._writes[name] += 1
            return count

    def hashes(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Look the documents up by id."""
        found: dict[str, str] = {}
        with _translated(name):
            table = self._open(name)
            for start in range(0, len(ids), _ID_BATCH):
                where = f"position = 0 AND {one_of('document_id', ids[start : start + _ID_BATCH])}"
                rows = table.search().where(where).select(["document_id", "content_hash"]).limit(_ID_BATCH).to_arrow()
                found |= dict(zip(rows["document_id"].to_pylist(), rows["content_hash"].to_pylist(), strict=True))
        return found

    def document_ids(self, name: str) -> Iterator[str]:
        """Scan the first passages of all documents."""
        with _translated(name):
            table = self._open(name)
            query = table.search().where("position = 0").select(["document_id"]).limit(max(1, table.count_rows()))
            return iter(query.to_arrow()["document_id"].to_pylist())

    @contextmanager
    def snapshot(self, name: str) -> Iterator[LanceSnapshot]:
        """Open the newest version; an opened table never moves on by itself."""
        with _translated(name):
            table = self._open(name)
            yield LanceSnapshot(table, _describe(table, name).dimension)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        names: list[str] = []
        token = None
        while True:
            page = self._db.list_tables(page_token=token, limit=1000)
            names += page.tables
            token = page.page_token
            if not token:
                return sorted(name for name in names if _is_name(name))

    def _open(self, name: str) -> Any:
        """Open a table. A look-up never makes anything: only a name that is listed can be damaged."""
        try:
            return self._db.open_table(check_name(name))
        except BatonError:
            raise
        except Exception as error:
            if name not in self._names():
                raise not_found(name) from None
            if str(error) == f"Table '{name}' was not found":
                raise damaged(name, "it has no valid manifest") from error
            raise

    def _describe_any(self, name: str, where: Filter | None) -> CollectionInfo:
        try:
            return self.describe(name, where)
        except BatonError as error:
            return CollectionInfo(name, 0, "", fault=error.message)

    @contextmanager
    def _written(self, name: str) -> Iterator[None]:
        """Hold off other writers, of this process and (in a local folder) of others."""
        with self._lock, _file_lock(self._folder) if self._folder else nullcontext(), _translated(name):
            yield


class LanceSnapshot:
    """One version of a table."""

    def __init__(self, table: Any, dimension: int) -> None:
        self.dimension = dimension
        self._table = table

    def nearest(self, vector: Matrix, limit: int, where: Filter | None) -> Ranked:
        """Search by vector: exact without an index, else in the nearest partitions and all that is not indexed."""
        query = self._table.search(vector, vector_column_name="vector").distance_type("cosine").nprobes(_PROBES)
        return self._ranked(query, "_distance", limit, where)

    def matching(self, terms: Sequence[str], limit: int, where: Filter | None) -> Ranked:
        """Search by BM25 over the column of terms."""
        from lancedb.query import MatchQuery

        query = self._table.search(MatchQuery(" ".join(terms), "terms"), query_type="fts")
        return self._ranked(query, "_score", limit, where)

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Read passages by id."""
        if not ids:
            return []
        columns = ["id", "text", "source", "metadata", "tokens"]
        rows = self._table.search().where(one_of("id", ids)).select(columns).limit(len(ids)).to_arrow().to_pylist()
        by_id = {row["id"]: StoredPassage(**row) for row in rows}
        return [by_id[key] for key in ids if key in by_id]

    def _ranked(self, query: Any, score: str, limit: int, where: Filter | None) -> Ranked:
        if where is not None:
            query = query.where(compile_filter(where), prefilter=True)
        rows = query.select(["id", "vector", score]).limit(limit).to_arrow().combine_chunks()
        flat = rows["vector"].combine_chunks().flatten().to_numpy()
        return Ranked(rows["id"].to_pylist(), flat.reshape(rows.num_rows, self.dimension))


def _schema(dimension: int, embedder: str) -> pa.Schema:
    """Return a table's schema. Metadata is kept twice: as JSON to return, as typed lists beside its keys to filter."""
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("terms", pa.string()),
        pa.field("source", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("metadata_keys", pa.list_(pa.string())),
        pa.field("metadata_texts", pa.list_(pa.string())),
        pa.field("metadata_numbers", pa.list_(pa.float64())),
        pa.field("metadata_booleans", pa.list_(pa.bool_())),
        pa.field("content_hash", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), dimension)),
        pa.field("tokens", pa.large_binary()),
    ]
    return pa.schema(fields, metadata={_INFO: json.dumps({"embedder": embedder}).encode()})


def _rows(records: Sequence[PassageRecord], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([_row(record) for record in records], schema=schema)


def _row(record: PassageRecord) -> dict[str, Any]:
    values = list(record.metadata.values())
    booleans = [value if isinstance(value, bool) else None for value in values]
    numeric = [isinstance(value, int | float) and not isinstance(value, bool) for value in values]
    return {
        "id": record.id,
        "document_id": record.document_id,
        "position": record.position,
        "text": record.text,
        "terms": " ".join(tokenize(record.text)),
        "source": record.source,
        "metadata": orjson.dumps(dict(record.metadata)).decode(),
        "metadata_keys": list(record.metadata),
        "metadata_texts": [value if isinstance(value, str) else None for value in values],
        "metadata_numbers": [
            float(value) if is_number else None for value, is_number in zip(values, numeric, strict=True)
        ],
        "metadata_booleans": booleans,
        "content_hash": record.content_hash,
        "vector": record.vector,
        "tokens": encode_tokens(record.tokens),
    }


def _describe(table: Any, name: str) -> CollectionInfo:
    schema = table.schema
    index = schema.get_field_index("vector")
    if index < 0 or not pa.types.is_fixed_size_list(schema.field(index).type):
        raise damaged(name, "it has no column of vectors")
    if missing := [column for column in _COLUMNS if column not in schema.names]:
        raise damaged(name, f"it was not made by Baton: it has no column '{missing[0]}'")
    info = json.loads((schema.metadata or {}).get(_INFO, b"{}"))
    return CollectionInfo(name, schema.field(index).type.list_size, str(info.get("embedder", "")))


def _counted(table: Any, name: str, where: Filter | None) -> CollectionInfo:
    info, own = _describe(table, name), _conditions(where)
    documents = table.count_rows(" AND ".join(["position = 0", *own]))
    return CollectionInfo(name, info.dimension, info.embedder, documents, table.count_rows(*own))


def _conditions(where: Filter | None) -> list[str]:
    return [] if where is None else [compile_filter(where)]


def _index_text(table: Any) -> None:
    """Index the terms as they are: ``terms.tokenize`` has done the rest."""
    from lancedb.index import FTS

    plain = FTS(
        base_tokenizer="whitespace",
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )
    table.create_index("terms", config=plain)


def _index_vectors(table: Any) -> None:
    from lancedb.index import BTree, IvfFlat

    table.create_index("vector", config=IvfFlat(distance_type="cosine"))
    table.create_index("id", config=BTree())
    table.create_index("document_id", config=BTree())


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except BatonError:
        return False


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Turn the engine's errors into ours; its texts may quote what was asked, so only the kind is told."""
    try:
        yield
    except BatonError:
        raise
    except Exception as error:
        if _DAMAGE.match(str(error)):
            raise damaged(name, "files of it are missing or broken") from error
        raise unexpected(error) from error


@contextmanager
def _file_lock(folder: Path) -> Iterator[None]:
    with (folder / ".writer.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
