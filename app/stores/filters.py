"""The filter language: a small typed tree, given as JSON, that means the same in every store.

::

    {"lang": "en"}                                  the key equals the value
    {"price": {"gte": 5, "lt": 20}}                 number ranges: lt, lte, gt, gte
    {"category": {"in": ["tools", "工具"]}}          one of the values
    {"stock": {"ne": 0}, "colour": {"exists": true}}  several keys must all hold
    {"and": [...]}, {"or": [...]}, {"not": {...}}   nest freely within the limits
    {}                                              holds for every passage, also inside others

A condition on a missing key, or on a value of another type, is false (so ``ne`` and ``not`` are then true): there is no
third truth value. Texts, numbers and booleans never equal each other; 1 and 1.0 do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import InvalidRequest, bounded

MAX_DEPTH = 8
MAX_NODES = 64
MAX_VALUES = 256
MAX_KEY_CHARS = 128
MAX_TEXT_CHARS = 1024
#: The field that tells whose a document is (``app/stores/tenants.py``), and how ids of such documents begin.
RESERVED_KEY = "baton.tenant"
RESERVED_ID = "tenant:"
#: How filters are joined: no field may have such a name, since no filter could ask for it.
JOINERS = frozenset({"and", "or", "not"})
#: Whole numbers beyond this lose digits as float64, which is how every store compares them. It bounds all numbers:
#: parsers of JSON hand over a longer whole number as a float.
MAX_NUMBER = 2**53

Order = Literal["lt", "lte", "gt", "gte"]
_ORDERS: tuple[Order, ...] = ("lt", "lte", "gt", "gte")


Value = str | float | bool


@dataclass(frozen=True, slots=True)
class OneOf:
    """The key holds one of these texts, numbers (always float) and booleans."""

    key: str
    values: tuple[Value, ...]

    @property
    def texts(self) -> list[str]:
        """The values that are texts."""
        return [value for value in self.values if isinstance(value, str)]

    @property
    def numbers(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values if isinstance(value, float)]

    @property
    def booleans(self) -> list[bool]:
        """The values that are booleans."""
        return [value for value in self.values if isinstance(value, bool)]


@dataclass(frozen=True, slots=True)
class Compares:
    """The key holds a number on this side of ``value``."""

    key: str
    order: Order
    value: float


@dataclass(frozen=True, slots=True)
class Exists:
    """The key is there."""

    key: str


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; there are at least two."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; there are at least two."""

    parts: tuple[Filter, ...]


Filter = OneOf | Compares | Exists | Not | And | Or


@dataclass(frozen=True, slots=True)
class Never:
    """Holds for no passage. Only ever a whole filter: no store has to express it."""


def parse_filter(raw: Any, path: str = "rag.filter") -> Filter | Never | None:
    """Return the tree of a filter given as JSON; None when it holds for all, Never when it holds for none.

    What holds for all or for none is simplified away inside. Raises InvalidRequest naming the place of the fault from
    ``path`` on.
    """
    if raw is None:
        return None
    return _Parser().parse(raw, path, 1)


class _Parser:
    """Counts conditions across the whole tree while it is built."""

    def __init__(self) -> None:
        self._nodes = 0
        self._values = 0

    def parse(self, raw: Any, path: str, depth: int) -> Filter | Never | None:
        if not isinstance(raw, Mapping):
            raise _fault(path, "must be an object")
        if depth > MAX_DEPTH:
            raise _fault(path, f"is nested deeper than {MAX_DEPTH} levels")
        return _all_of([self._entry(key, value, path, depth) for key, value in raw.items()])

    def _entry(self, key: Any, value: Any, path: str, depth: int) -> Filter | Never | None:
        self._count(path)
        where = f"{path}.{_key(key, path)}"
        if key == "not":
            return _none_of(self.parse(value, where, depth + 1))
        if key in ("and", "or"):
            return self._group(key, value, where, depth)
        if isinstance(value, Mapping):
            return self._conditions(key, value, where)
        if isinstance(value, list | tuple):
            raise _fault(where, 'must be text, a number, true, false or an object such as {"in": ["en", "zh"]}')
        return OneOf(key, (_scalar(value, where),))

    def _group(self, key: str, value: Any, path: str, depth: int) -> Filter | Never | None:
        if not isinstance(value, list | tuple) or not value:
            raise _fault(path, "must be a list of at least one filter")
        parts = [self.parse(part, f"{path}[{index}]", depth + 1) for index, part in enumerate(value)]
        return _all_of(parts) if key == "and" else _any_of(parts)

    def _conditions(self, key: str, conditions: Mapping[Any, Any], path: str) -> Filter:
        if not conditions:
            raise _fault(path, "must hold a condition")
        parts = []
        for operator, value in conditions.items():
            self._count(path, len(value) if isinstance(value, list | tuple) else 1)
            parts.append(_condition(key, operator, value, path))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _count(self, path: str, values: int = 1) -> None:
        self._nodes += 1
        self._values += values
        if self._nodes > MAX_NODES or self._values > MAX_VALUES:
            raise _fault(path, f"brings the filter over {MAX_NODES} conditions or {MAX_VALUES} values")


def _all_of(parts: Sequence[Filter | Never | None]) -> Filter | Never | None:
    if any(isinstance(part, Never) for part in parts):
        return Never()
    kept = tuple(part for part in parts if part is not None and not isinstance(part, Never))
    if len(kept) < 2:
        return kept[0] if kept else None
    return And(kept)


def _any_of(parts: Sequence[Filter | Never | None]) -> Filter | Never | None:
    if any(part is None for part in parts):
        return None
    kept = tuple(part for part in parts if part is not None and not isinstance(part, Never))
    if len(kept) < 2:
        return kept[0] if kept else Never()
    return Or(kept)


def _none_of(part: Filter | Never | None) -> Filter | Never | None:
    if part is None:
        return Never()
    return None if isinstance(part, Never) else Not(part)


def _condition(key: str, operator: Any, value: Any, path: str) -> Filter:
    where = f"{path}.{bounded(operator, 20).strip(chr(39))}"
    if operator == "eq":
        return OneOf(key, (_scalar(value, where),))
    if operator == "ne":
        return Not(OneOf(key, (_scalar(value, where),)))
    if operator == "in":
        return OneOf(key, _values(value, where))
    if operator == "exists":
        if not isinstance(value, bool):
            raise _fault(where, "must be true or false")
        return Exists(key) if value else Not(Exists(key))
    if operator in _ORDERS:
        return Compares(key, operator, _number(value, where))
    raise _fault(where, "is not an operator: use eq, ne, in, exists, lt, lte, gt or gte")


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
        raise _fault(path, f"has a key that is not 1 to {MAX_KEY_CHARS} printable characters")
    if key == RESERVED_KEY:
        raise _fault(f"{path}.{key}", "is a reserved field: a key's own tenant is always searched, and no other")
    return key


def _values(value: Any, path: str) -> tuple[Value, ...]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MAX_VALUES:
        raise _fault(path, f"must be a list of 1 to {MAX_VALUES} values")
    return tuple(_scalar(item, f"{path}[{index}]") for index, item in enumerate(value))


def _scalar(value: Any, path: str) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if value is None:
        raise _fault(path, 'is null: to find missing keys use {"exists": false}')
    if not isinstance(value, int | float):
        raise _fault(path, "must be text, a number, true or false")
    return _number(value, path)


def _text(value: str, path: str) -> str:
    if len(value) > MAX_TEXT_CHARS:
        raise _fault(path, f"is longer than {MAX_TEXT_CHARS} characters")
    if "\0" in value or any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        raise _fault(path, "holds a character that is not text")
    return value


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fault(path, "must be a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault(path, "must be finite")
    if abs(value) > MAX_NUMBER:
        raise _fault(path, "must be a number from -2^53 to 2^53, as every store compares them")
    return float(value)


def _fault(path: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{path} {what}.", stage="retriever", param="rag.filter")


def matches(node: Filter | Never | None, metadata: Mapping[str, Any]) -> bool:
    """Tell whether metadata passes a filter: the meaning that every store's own form has to share."""
    match node:
        case None:
            return True
        case Never():
            return False
        case And(parts):
            return all(matches(part, metadata) for part in parts)
        case Or(parts):
            return any(matches(part, metadata) for part in parts)
        case Not(part):
            return not matches(part, metadata)
        case Exists(key):
            return metadata.get(key) is not None
        case OneOf(key, values):
            return any(_equal(metadata.get(key), value) for value in values)
        case Compares(key, order, value):
            return _ordered(metadata.get(key), order, value)


def _equal(found: Any, value: Value) -> bool:
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return bool(found == value)


def _ordered(found: Any, order: Order, value: float) -> bool:
    if not _is_number(found):
        return False
    number = float(found)
    return {"lt": number < value, "lte": number <= value, "gt": number > value, "gte": number >= value}[order]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
