"""Bounds of a JSON schema that no value can keep, which the engine's grammar compiler refuses without a place."""

from __future__ import annotations

from typing import Any, TypeGuard

from app.answers.schema_tree import Path, Schema, SchemaError

_NUMBERS = frozenset({"number", "integer"})
_BOUNDS = (
    (_NUMBERS, ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
    (frozenset({"string"}), ("minLength",), ("maxLength",)),
    (frozenset({"array"}), ("minItems",), ("maxItems",)),
    (frozenset({"array"}), ("minContains",), ("maxContains",)),
    (frozenset({"object"}), ("minProperties",), ("maxProperties",)),
)


def check_possible(path: Path, node: Schema) -> None:
    """Raise :class:`SchemaError` where an ``enum`` is empty or a lower bound is over the upper one."""
    if node.get("enum") == []:
        raise SchemaError((*path, "enum"), "enum is empty, so no answer would fit: name its values, or leave it out")
    types = types_of(node)
    for kinds, lowers, uppers in _BOUNDS:
        if types & kinds:
            for lower in lowers:
                for upper in uppers:
                    _check_pair(path, node, lower, upper)


def types_of(node: Schema) -> set[str]:
    """Return the types that a schema names."""
    kind = node.get("type")
    return {name for name in (kind if isinstance(kind, list) else [kind]) if isinstance(name, str)}


def _check_pair(path: Path, node: Schema, lower: str, upper: str) -> None:
    least, most = node.get(lower), node.get(upper)
    if not (_is_number(least) and _is_number(most)):
        return
    if least > most:
        raise SchemaError((*path, lower), f"{lower} is {least}, over {upper} {most}: swap or change them")
    if least == most and (lower.startswith("exclusive") or upper.startswith("exclusive")):
        raise SchemaError((*path, lower), f"no number lies between {lower} {least} and {upper} {most}: change one")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
