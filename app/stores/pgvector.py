"""Collections as PostgreSQL tables with pgvector: one schema ``baton``, one table of passages per collection.

Each write is one transaction; a search reads in one REPEATABLE READ transaction. Every value is a parameter; table
names are made of a serial number, never of a collection's name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from app.stores.filters import Filter
from app.stores.payload import encode_tokens
from app.stores.pgvector_sql import (
    COUNTS,
    CREATE_COLLECTION,
    CREATE_SCHEMA,
    DELETE_DOCUMENTS,
    FIND_COLLECTION,
    INSERT_PASSAGE,
    LOCK_COLLECTION,
    SEARCH_TEXT,
    SEARCH_VECTOR,
    compile_filter,
    tsquery_literals,
    tsvector_literal,
)
from app.stores.secrets import read_secret
from app.stores.terms import tokenize

# pgvector indexes at most this many dimensions; wider vectors are compared one by one.
_MAX_INDEXED_DIMENSION = 2000
# Below this many passages comparing all vectors is quick, and exact.
_INDEX_FROM_PASSAGES = 50_000
_IDLE_CONNECTIONS = 8
_RETRY_AFTER_SECONDS = 5


class PgVectorStore:
    """A :class:`app.stores.contract.Store` on PostgreSQL with the extension ``vector``."""

    def __init__(self, config: StoreConfig, *, index_from_passages: int = _INDEX_FROM_PASSAGES) -> None:
        self._config = config
        self._index_from_passages = index_from_passages
        self._secret: str | None = None
        self._idle: deque[Any] = deque()

    def start(self) -> None:
        """Connect; make the extension and the schema when missing."""
        import psycopg

        self._secret = read_secret(self._config)
        try:
            with psycopg.connect(self._config.uri, **self._options()) as connection:
                connection.execute(CREATE_SCHEMA)
        except psycopg.Error as error:
            # The server's text is left out: it may quote the password that the URI carries.
            raise ConfigError(f"store.uri: PostgreSQL cannot be used ({type(error).__name__})", STAGE) from error

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    # --- collections ------------------------------------------------------------------------------------------------

    def create_collection(self, name: str, dimension: int, embedder: str) -> None:
        """Make the collection's row and table unless they are there."""
        with self._transaction(check_name(name)) as connection:
            row = connection.execute(
                "INSERT INTO baton.collections (name, dimension, embedder) VALUES (%s, %s, %s) "
                "ON CONFLICT (name) DO NOTHING RETURNING id",
                (name, dimension, embedder),
            ).fetchone()
            if row is not None:
                for statement in CREATE_COLLECTION:
                    connection.execute(_named(statement, row[0], dimension))
                return
            found = _require(connection, name)
        check_dimension(name, found[1], dimension)

    def drop_collection(self, name: str) -> None:
        """Drop the table and the row."""
        with self._transaction(check_name(name)) as connection:
            key = _require(connection, name, lock=True)[0]
            connection.execute(_named("DROP TABLE IF EXISTS {table}", key))
            connection.execute("DELETE FROM baton.collections WHERE id = %s", (key,))

    def list_collections(self, where: Filter | None = None) -> list[CollectionInfo]:
        """Return all collections with their counts."""
        with self._transaction("*") as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM baton.collections ORDER BY name")]
        infos = []
        for name in names:
            try:
                infos.append(self.describe(name, where))
            except BatonError as error:
                infos.append(CollectionInfo(name, 0, "", fault=error.message))
        return infos

    def describe(self, name: str, where: Filter | None = None) -> CollectionInfo:
        """Count the collection's rows."""
        condition, values = compile_filter(where)
        with self._transaction(check_name(name)) as connection:
            key, dimension, embedder = _require(connection, name)
            counts = _named(COUNTS.replace("{where}", condition), key)
            documents, passages = connection.execute(counts, values).fetchone()
        return CollectionInfo(name, dimension, embedder, documents, passages)

    def tidy(self, name: str) -> None:
        """Index the vectors once there are many; the rest PostgreSQL does by itself."""
        with self._transaction(check_name(name)) as connection:
            key, dimension, _ = _require(connection, name)
            estimate = "SELECT reltuples FROM pg_class WHERE oid = %s::regclass"
            rows = connection.execute(estimate, (f"baton.passages_{key}",)).fetchone()[0]
            if rows >= self._index_from_passages and dimension <= _MAX_INDEXED_DIMENSION:
                index = "CREATE INDEX IF NOT EXISTS {index} ON {table} USING hnsw (vector vector_cosine_ops)"
                connection.execute(_named(index, key))

    # --- documents --------------------------------------------------------------------------------------------------

    def upsert(self, name: str, records: Sequence[PassageRecord]) -> None:
        """Replace the documents' rows in one transaction; writers of a collection queue up behind its row."""
        documents = list({record.document_id for record in records})
        with self._transaction(check_name(name)) as connection:
            key = _require(connection, name, lock=True)[0]
            connection.execute(_named("DELETE FROM {table} WHERE document_id = ANY(%s)", key), (documents,))
            with connection.cursor() as cursor:
                cursor.executemany(_named(INSERT_PASSAGE, key), [_row(record) for record in records])

    def delete_documents(self, name: str, ids: Sequence[str] | None, where: Filter | None = None) -> int:
        """Delete the documents' rows in one transaction."""
        condition, values = compile_filter(where)
        named = None if ids is None else list(ids)
        with self._transaction(check_name(name)) as connection:
            key = _require(connection, name, lock=True)[0]
            statement = _named(DELETE_DOCUMENTS.replace("{where}", condition), key)
            return int(connection.execute(statement, (named, named, *values)).fetchone()[0])

    def hashes(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Look the documents up by id."""
        with self._transaction(check_name(name)) as connection:
            key = _require(connection, name)[0]
            query = "SELECT document_id, content_hash FROM {table} WHERE position = 0 AND document_id = ANY(%s)"
            return dict(connection.execute(_named(query, key), (list(ids),)).fetchall())

    def document_ids(self, name: str) -> Iterator[str]:
        """Scan the first passages of all documents."""
        with self._transaction(check_name(name)) as connection:
            key = _require(connection, name)[0]
            rows = connection.execute(_named("SELECT document_id FROM {table} WHERE position = 0", key)).fetchall()
        return iter([row[0] for row in rows])

    @contextmanager
    def snapshot(self, name: str) -> Iterator[PgVectorSnapshot]:
        """Open one read-only transaction that sees one state."""
        with self._transaction(check_name(name)) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # With an index: go on until enough rows pass the filter.
            connection.execute("SET LOCAL hnsw.iterative_scan = 'strict_order'")
            connection.execute("SET LOCAL hnsw.ef_search = 200")
            key, dimension, _ = _require(connection, name)
            yield PgVectorSnapshot(connection, key, dimension)

    # --- connections ------------------------------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        secret = {"password": self._secret} if self._secret else {}
        return {"autocommit": True, "connect_timeout": 5, **secret}

    def _connect(self) -> Any:
        import psycopg
        from pgvector.psycopg import register_vector

        connection = psycopg.connect(self._config.uri, **self._options())
        register_vector(connection)
        return connection

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        finally:
            if connection.closed or len(self._idle) >= _IDLE_CONNECTIONS:
                connection.close()
            else:
                self._idle.append(connection)

    @contextmanager
    def _transaction(self, name: str) -> Iterator[Any]:
        """Lend a connection for one transaction, with PostgreSQL's errors turned into ours."""
        import psycopg

        try:
            with self._lent() as connection, connection.transaction():
                yield connection
        except BatonError:
            raise
        except psycopg.OperationalError as error:
            self.close()
            sentence = f"PostgreSQL does not answer ({type(error).__name__})"
            raise StageUnavailable(sentence, STAGE, retry_after_seconds=_RETRY_AFTER_SECONDS) from error
        except _damage() as error:
            raise damaged(name, type(error).__name__) from error
        except psycopg.Error as error:
            raise unexpected(error) from error


def _damage() -> tuple[type[Exception], ...]:
    """Return PostgreSQL's errors that mean a table is gone, of another form or broken."""
    from psycopg import errors

    return errors.UndefinedTable, errors.UndefinedColumn, errors.DataCorrupted, errors.IndexCorrupted


class PgVectorSnapshot:
    """One transaction on one collection."""

    def __init__(self, connection: Any, key: int, dimension: int) -> None:
        self.dimension = dimension
        self._connection = connection
        self._key = key

    def nearest(self, vector: Matrix, limit: int, where: Filter | None) -> Ranked:
        """Order by cosine distance."""
        condition, values = compile_filter(where)
        return self._ranked(SEARCH_VECTOR.replace("{where}", condition), [*values, vector, limit])

    def matching(self, terms: Sequence[str], limit: int, where: Filter | None) -> Ranked:
        """Order by the sum over the terms of rarity times rank in the passage."""
        condition, values = compile_filter(where)
        literals = tsquery_literals(terms)
        return self._ranked(SEARCH_TEXT.replace("{where}", condition), [" | ".join(literals), *values, literals, limit])

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Read passages by id."""
        query = "SELECT id, text, source, metadata, tokens FROM {table} WHERE id = ANY(%s)"
        rows = self._connection.execute(_named(query, self._key), (list(ids),), binary=True).fetchall()
        by_id = {row[0]: StoredPassage(*row) for row in rows}
        return [by_id[key] for key in ids if key in by_id]

    def _ranked(self, query: str, values: Sequence[Any]) -> Ranked:
        rows = self._connection.execute(_named(query, self._key), values, binary=True).fetchall()
        vectors = np.array([row[1].to_numpy() for row in rows], np.float32).reshape(len(rows), self.dimension)
        return Ranked([row[0] for row in rows], vectors)


def _require(connection: Any, name: str, *, lock: bool = False) -> tuple[int, int, str]:
    """Return the collection's serial number, dimension and embedder; ``lock`` holds off other writers."""
    row = connection.execute(LOCK_COLLECTION if lock else FIND_COLLECTION, (name,)).fetchone()
    if row is None:
        raise not_found(name)
    return int(row[0]), int(row[1]), str(row[2])


def _named(statement: str, key: int, dimension: int = 0) -> Any:
    """Put a collection's table, its index's name and its dimension, all made of whole numbers, into a statement."""
    from psycopg import sql

    return sql.SQL(statement).format(
        table=sql.Identifier("baton", f"passages_{key:d}"),
        index=sql.Identifier(f"passages_{key:d}_vector"),
        dimension=sql.Literal(dimension),
    )


def _row(record: PassageRecord) -> tuple[Any, ...]:
    metadata = orjson.dumps(dict(record.metadata)).decode()
    return (
        record.id,
        record.document_id,
        record.position,
        record.text,
        tsvector_literal(tokenize(record.text)),
        record.source,
        metadata,
        metadata,
        record.content_hash,
        record.vector,
        encode_tokens(record.tokens),
    )
