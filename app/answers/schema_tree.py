"""A JSON schema as a tree of schemas, and how much work a validator may have with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.answers.json_pointer import pointer, resolve

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLES = (
    "items",
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
_STORED = frozenset({"$defs", "definitions"})
# These judge the same value as the schema that holds them; all others judge a part of it.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})

#: Deepest answer that is checked against a schema, in levels of objects and lists.
ANSWER_DEPTH = 32
_MAX_HOPS = 64
_MAX_EVALUATIONS = 100_000

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]


class SchemaError(ValueError):
    """What is wrong with a schema, at which place in it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{pointer(path) or '(root)'}: {reason}")


@dataclass(frozen=True, slots=True)
class Child:
    """A schema inside another one."""

    keyword: str
    path: Path
    schema: Schema


def children(schema: Schema, path: Path = ()) -> Iterator[Child]:
    """Yield the schemas right inside ``schema``; faulty shapes are left to the meta-schema."""
    for keyword, name, value in _entries(schema):
        if isinstance(value, dict):
            yield Child(keyword, (*path, keyword) if name is None else (*path, keyword, name), value)


def _entries(schema: Schema) -> Iterator[tuple[str, str | int | None, Any]]:
    for keyword in _MAPS:
        entries = schema.get(keyword)
        yield from ((keyword, name, value) for name, value in (entries.items() if isinstance(entries, dict) else ()))
    for keyword in _LISTS:
        entries = schema.get(keyword)
        yield from ((keyword, place, value) for place, value in enumerate(entries if isinstance(entries, list) else ()))
    for keyword in _SINGLES:
        yield keyword, None, schema.get(keyword)


def walk(schema: Schema, max_depth: int) -> Iterator[tuple[Path, Schema]]:
    """Yield every schema of the document. Raises :class:`SchemaError` below ``max_depth`` levels of schemas."""
    level: list[tuple[Path, Schema]] = [((), schema)]
    for _ in range(max_depth):
        yield from level
        level = [(child.path, child.schema) for path, node in level for child in children(node, path)]
        if not level:
            return
    raise SchemaError(level[0][0], f"schemas are nested deeper than {max_depth} levels")


class Workload:
    """Bounds how often one place of an answer is judged: alternatives and references multiply."""

    def __init__(self, root: Schema, nodes: list[tuple[Path, Schema]]) -> None:
        self._root = root
        self._nodes = nodes
        self._paths = {id(node): path for path, node in nodes}
        self._below: dict[int, int] = {}
        self._here: dict[int, int] = {}

    def check(self) -> None:
        """Raise :class:`SchemaError` for loops that go no deeper and for schemas that multiply without bound."""
        for _ in range(ANSWER_DEPTH):
            self._here = {}
            for _, node in self._nodes:
                self._cost(node, ())
            if self._here == self._below:
                return
            self._below = self._here

    def _cost(self, node: Schema, open_nodes: tuple[int, ...]) -> int:
        known = self._here.get(id(node))
        if known is not None:
            return known
        path = self._paths[id(node)]
        if id(node) in open_nodes:
            raise SchemaError(path, "the schema refers to itself without going deeper into the answer")
        if len(open_nodes) > _MAX_HOPS:
            raise SchemaError(path, f"more than {_MAX_HOPS} references and alternatives lie on top of each other")
        total = 1 + self._in_place(node, (*open_nodes, id(node))) + self._parts(node)
        if total > _MAX_EVALUATIONS:
            raise SchemaError(path, "alternatives and references multiply: the schema would take too long to check")
        self._here[id(node)] = total
        return total

    def _in_place(self, node: Schema, open_nodes: tuple[int, ...]) -> int:
        """Alternatives for different types exclude each other, so only the dearest type counts."""
        untyped = 0
        by_type: dict[str, int] = {}
        for target in self._same_value(node):
            cost = self._cost(target, open_nodes)
            kind = target.get("type")
            if isinstance(kind, str):
                by_type[kind] = by_type.get(kind, 0) + cost
            else:
                untyped += cost
        return untyped + max(by_type.values(), default=0)

    def _same_value(self, node: Schema) -> Iterator[Schema]:
        if isinstance(node.get("$ref"), str):
            yield self._target(node)
        yield from (child.schema for child in children(node) if child.keyword in _IN_PLACE)

    def _parts(self, node: Schema) -> int:
        """Two properties are two places of the answer: only the dearest counts. Other parts may overlap."""
        costs = [
            (child.keyword, self._below.get(id(child.schema), 0))
            for child in children(node)
            if child.keyword not in _IN_PLACE | _STORED
        ]
        properties = max((cost for keyword, cost in costs if keyword == "properties"), default=0)
        return properties + sum(cost for keyword, cost in costs if keyword != "properties")

    def _target(self, node: Schema) -> Schema:
        reference, path = node["$ref"], self._paths[id(node)]
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaError(path, '"$ref" must stay inside the schema ("#/$defs/…"); nothing is fetched')
        try:
            target = resolve(self._root, reference)
        except (LookupError, ValueError):
            raise SchemaError(path, '"$ref" points to nothing in the schema') from None
        if id(target) not in self._paths:
            raise SchemaError(path, '"$ref" does not point to a schema')
        return dict_of(target)


def dict_of(value: Any) -> Schema:
    """Narrow a value that is known to be a schema object."""
    assert isinstance(value, dict)
    return value
