"""Checks of a caller's JSON schema, before any grammar is compiled from it. Nothing is ever fetched.

Limits besides the two that are configured (bytes, depth): 512 property names, 1,024 ``enum`` values, 4,096 for bounds
that unroll a grammar (``minItems`` and its like), 512 characters for a ``pattern``, which must be free of look-around
and back-references (they have no linear-time automaton). References stay inside the schema and must get deeper into
the answer before they return to where they began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from app.answers.json_pointer import pointer
from app.answers.schema_bounds import check_possible
from app.answers.schema_tree import Path, Schema, SchemaError, Workload, walk
from app.errors import SchemaRejected, bounded

_MAX_PROPERTIES = 512
_MAX_ENUM_VALUES = 1024
_MAX_REPETITION = 4096
_MAX_PATTERN_CHARS = 512
_REPETITIONS = (
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
#: Grammars count whole numbers in 64 bits.
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_INT64 = 2**63
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFUSED = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$vocabulary")


class SchemaLimits(Protocol):
    """The configured limits."""

    @property
    def max_schema_depth(self) -> int:
        """Deepest nesting of schemas."""

    @property
    def max_schema_bytes(self) -> int:
        """Largest schema, in bytes of compact JSON."""


def check_schema(schema: Any, limits: SchemaLimits, param: str | None = None) -> None:
    """Raise :class:`SchemaRejected` naming the fault when a schema is invalid, over a limit, or refers outside itself.

    ``param`` names the request's field, for the error.
    """
    try:
        _check(schema, limits)
    except SchemaError as fault:
        raise SchemaRejected(f"JSON schema refused at {fault}", "gateway", param) from None


def compile_schema(schema: Any) -> Any:
    """Return a validator of ``schema`` that stays offline and matches patterns in linear time.

    Raises :class:`SchemaError` when the schema breaks the rules of its draft. The masked messages name no value.
    """
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, mask="value", pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError as error:
        # For a broken schema the instance is the schema itself.
        raise SchemaError(tuple(error.instance_path), _schema_reason(error)) from None
    except (ValueError, RecursionError) as error:
        raise SchemaError((), bounded(str(error))) from None


def _schema_reason(error: Any) -> str:
    if not error.instance_path:
        return _unresolved(error.message)
    keyword = error.instance_path[-1]
    if keyword == "pattern":
        return "not a regular expression that can be used (look-around and back-references are not)"
    return f"{bounded(error.instance)} is not allowed here"


def _unresolved(message: str) -> str:
    """Return our words for what keeps a well-formed schema from being compiled."""
    if message.startswith("Unknown meta-schema"):
        return f"$schema names no draft that is known: use {_DRAFT} or leave it out"
    return "the schema cannot be used: check its $schema, its $id and every $ref"


def _check(schema: Any, limits: SchemaLimits) -> None:
    if not isinstance(schema, dict):
        raise SchemaError((), "the schema must be a JSON object")
    _check_size(schema, limits.max_schema_bytes)
    nodes = list(walk(schema, limits.max_schema_depth))
    for path, node in nodes:
        _check_node(path, node)
    _check_count("property names", _MAX_PROPERTIES, sum(_length(node, "properties", dict) for _, node in nodes))
    _check_count("enum values", _MAX_ENUM_VALUES, sum(_length(node, "enum", list) for _, node in nodes))
    Workload(schema, nodes).check()
    compile_schema(schema)


def _check_size(schema: Schema, max_bytes: int) -> None:
    import orjson

    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError):
        raise SchemaError((), "the schema is not valid JSON, or is nested too deep") from None
    if size > max_bytes:
        raise SchemaError((), f"the schema has {size} bytes; {max_bytes} are allowed")


def _check_node(path: Path, node: Schema) -> None:
    for keyword in _REFUSED:
        if keyword in node:
            raise SchemaError((*path, keyword), f"{keyword} is not supported; use $ref with #/$defs/…")
    if path and "$id" in node:
        raise SchemaError((*path, "$id"), "$id is supported at the root only")
    for keyword in _REPETITIONS:
        value = node.get(keyword)
        if isinstance(value, int | float) and value > _MAX_REPETITION:
            raise SchemaError((*path, keyword), f"{bounded(value)} is over the limit of {_MAX_REPETITION}")
    if node.get("type") == "integer":
        _check_bounds(path, node)
    check_possible(path, node)
    pattern = node.get("pattern")
    if isinstance(pattern, str) and len(pattern) > _MAX_PATTERN_CHARS:
        raise SchemaError((*path, "pattern"), f"a pattern may have {_MAX_PATTERN_CHARS} characters")


def _check_bounds(path: Path, node: Schema) -> None:
    for keyword in _BOUNDS:
        value = node.get(keyword)
        if isinstance(value, int | float) and abs(value) >= _INT64:
            raise SchemaError((*path, keyword), f"{bounded(value)} is over the limit of 2^63 for whole numbers")


def _check_count(what: str, limit: int, count: int) -> None:
    if count > limit:
        raise SchemaError((), f"the schema has {count} {what}; {limit} are allowed")


def _length(node: Schema, keyword: str, kind: type[dict[str, Any]] | type[list[Any]]) -> int:
    value = node.get(keyword)
    return len(value) if isinstance(value, kind) else 0


def failure(error: Any, schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return pointer and message of a validation error; the message names the rule and never the answer's text."""
    rule: Any = schema
    keyword: Any = "schema"
    for keyword in error.schema_path:
        # A reference leaves the path's own tree; its keyword alone must do then.
        rule = rule[keyword] if isinstance(rule, dict | list) and _has(rule, keyword) else None
    told = "" if rule is None else f" {bounded(rule)}"
    return pointer(error.instance_path), f"does not satisfy {str(keyword)[:80]}{told}"


def _has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else isinstance(key, int) and key < len(container)
