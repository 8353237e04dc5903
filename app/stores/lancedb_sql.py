"""Filters as LanceDB's SQL. LanceDB takes no parameters, so each value becomes a literal here and nowhere else.

Metadata lies in one list of keys and three typed lists beside it. Keys are values in this form, never identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.stores.filters import And, Compares, Exists, Filter, Not, OneOf, Or

_OPERATORS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def compile_filter(node: Filter) -> str:
    """Return a condition that is true or false for every row, never null."""
    match node:
        case And(parts):
            return _joined(parts, " AND ")
        case Or(parts):
            return _joined(parts, " OR ")
        case Not(part):
            return f"(NOT {compile_filter(part)})"
        case Exists(key):
            return f"array_has(metadata_keys, {text_literal(key)})"
        case Compares(key, order, value):
            return _certain(f"{_element('numbers', key)} {_OPERATORS[order]} {number_literal(value)}")
        case OneOf():
            return _one_of_values(node)


def one_of(column: str, values: Sequence[str]) -> str:
    """Return the condition that a column of texts holds one of the values; ``column`` is a name of ours."""
    return f"{column} IN ({', '.join(map(text_literal, values))})"


def text_literal(value: str) -> str:
    """Return a text as an SQL literal: quotes doubled, and no other character has a meaning inside."""
    return "'" + value.replace("'", "''") + "'"


def number_literal(value: float) -> str:
    """Return a number as an SQL literal of type float64; parenthesised, since minus is an operator."""
    return f"CAST({value!r} AS DOUBLE)" if value >= 0 else f"(-CAST({-value!r} AS DOUBLE))"


def _one_of_values(node: OneOf) -> str:
    groups = {
        "texts": [text_literal(value) for value in node.texts],
        "numbers": [number_literal(value) for value in node.numbers],
        "booleans": [str(value).lower() for value in node.booleans],
    }
    conditions = [
        _certain(f"{_element(kind, node.key)} IN ({', '.join(literals)})")
        for kind, literals in groups.items()
        if literals
    ]
    return f"({' OR '.join(conditions)})"


def _joined(parts: Sequence[Filter], operator: str) -> str:
    return f"({operator.join(compile_filter(part) for part in parts)})"


def _element(kind: str, key: str) -> str:
    position = f"CAST(array_position(metadata_keys, {text_literal(key)}) AS BIGINT)"
    return f"array_element(metadata_{kind}, {position})"


def _certain(condition: str) -> str:
    return f"coalesce({condition}, false)"
