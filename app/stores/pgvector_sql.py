"""The statements of the PostgreSQL store, and filters as parametrised SQL over ``jsonb``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from app.stores.filters import And, Compares, Exists, Filter, Not, OneOf, Or

CREATE_SCHEMA = """
SELECT pg_advisory_xact_lock(4212063);
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS baton;
CREATE TABLE IF NOT EXISTS baton.collections (
    id serial PRIMARY KEY, name text NOT NULL UNIQUE, dimension integer NOT NULL, embedder text NOT NULL)
"""

#: ``metadata`` is the JSON as it came, to return; ``facets`` is the same to filter on (jsonb rewrites numbers).
CREATE_COLLECTION = (
    """
    CREATE TABLE {table} (
        id text PRIMARY KEY, document_id text NOT NULL, position integer NOT NULL, text text NOT NULL,
        terms tsvector NOT NULL, source text NOT NULL, metadata text NOT NULL, facets jsonb NOT NULL,
        content_hash text NOT NULL, vector vector({dimension}) NOT NULL, tokens bytea NOT NULL)
    """,
    "CREATE INDEX ON {table} (document_id)",
    "CREATE INDEX ON {table} USING gin (terms)",
)

INSERT_PASSAGE = "INSERT INTO {table} VALUES (%s, %s, %s, %s, %s::tsvector, %s, %s, %s::jsonb, %s, %s, %s)"

FIND_COLLECTION = "SELECT id, dimension, embedder FROM baton.collections WHERE name = %s"
LOCK_COLLECTION = "SELECT id, dimension, embedder FROM baton.collections WHERE name = %s FOR UPDATE"

COUNTS = "SELECT count(*) FILTER (WHERE position = 0), count(*) FROM {table} WHERE {where}"

DELETE_DOCUMENTS = """
WITH gone AS (
    DELETE FROM {table} WHERE (%s::text[] IS NULL OR document_id = ANY(%s::text[])) AND {where} RETURNING position)
SELECT count(*) FROM gone WHERE position = 0
"""

SEARCH_VECTOR = "SELECT id, vector FROM {table} WHERE {where} ORDER BY vector <=> %s, id LIMIT %s"

#: PostgreSQL ranks without regard to how rare a term is, so the weight is made here: that of BM25, over what matched.
SEARCH_TEXT = """
WITH found AS MATERIALIZED (SELECT id, terms FROM {table} WHERE terms @@ %s::tsquery AND {where}),
asked AS (SELECT unnest(%s::text[])::tsquery AS term),
weighed AS (
    SELECT term, ln(1 + ((SELECT count(*) FROM found) - count(id) + 0.5) / (count(id) + 0.5)) AS weight
    FROM asked LEFT JOIN found ON terms @@ term GROUP BY term),
scored AS (
    SELECT id, sum(weight * ts_rank(terms, term, 1)) AS score
    FROM found JOIN weighed ON terms @@ term GROUP BY id ORDER BY score DESC, id LIMIT %s)
SELECT id, vector FROM scored JOIN {table} USING (id) ORDER BY score DESC, id
"""

_OPERATORS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
# PostgreSQL keeps no position beyond the first and no more positions per term than the second.
_MAX_POSITION = 16383
_MAX_POSITIONS = 255


def compile_filter(node: Filter | None) -> tuple[str, list[Any]]:
    """Return a condition that is true or false for every row, never null, and its parameters."""
    match node:
        case None:
            return "true", []
        case And(parts):
            return _joined(parts, " AND ")
        case Or(parts):
            return _joined(parts, " OR ")
        case Not(part):
            condition, values = compile_filter(part)
            return f"(NOT {condition})", values
        case Exists(key):
            return "(facets -> %s::text) IS NOT NULL", [key]
        case Compares(key, order, value):
            return _typed("number", f"(facets ->> %s::text)::float8 {_OPERATORS[order]} %s::float8", key, value)
        case OneOf():
            return _one_of(node)


def _one_of(node: OneOf) -> tuple[str, list[Any]]:
    groups = (
        ("string", "(facets ->> %s::text) = ANY(%s::text[])", node.texts),
        ("number", "(facets ->> %s::text)::float8 = ANY(%s::float8[])", node.numbers),
        ("boolean", "(facets ->> %s::text)::boolean = ANY(%s::boolean[])", node.booleans),
    )
    typed = [_typed(kind, condition, node.key, values) for kind, condition, values in groups if values]
    return f"({' OR '.join(part for part, _ in typed)})", [value for _, values in typed for value in values]


def _typed(kind: str, condition: str, key: str, value: Any) -> tuple[str, list[Any]]:
    """Guard a comparison by the value's type: CASE, since AND may be evaluated in any order and a cast may fail."""
    return f"(CASE WHEN jsonb_typeof(facets -> %s::text) = '{kind}' THEN {condition} ELSE false END)", [key, key, value]


def _joined(parts: Sequence[Filter], operator: str) -> tuple[str, list[Any]]:
    compiled = [compile_filter(part) for part in parts]
    return f"({operator.join(part for part, _ in compiled)})", [value for _, values in compiled for value in values]


def tsvector_literal(terms: Sequence[str]) -> str:
    """Return the terms of a passage as a ``tsvector`` with positions, so that nothing is tokenised twice."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, term in enumerate(terms, start=1):
        if len(positions[term]) < _MAX_POSITIONS:
            positions[term].append(min(position, _MAX_POSITION))
    return " ".join(f"{_lexeme(term)}:{','.join(map(str, found))}" for term, found in positions.items())


def tsquery_literals(terms: Sequence[str]) -> list[str]:
    """Return each term of a question as a ``tsquery``; operators inside a term are plain characters."""
    return [_lexeme(term) for term in terms]


def _lexeme(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
