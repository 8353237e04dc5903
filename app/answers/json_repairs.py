"""Safe repairs of an answer that should be JSON: what stands round the value, and commas before a closing bracket.

Nothing inside a string is touched, nothing is added: a value that was cut off stays broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

_MAX_STARTS = 16
# A bracket that is never closed costs a look at the whole rest of the text.
_MAX_UNCLOSED = 4
_FENCE = re.compile(r"(?m)^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$|```")
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_MARKS = re.compile(r'["{}\[\]]|\\.', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Repaired:
    """A JSON value found in a text, and what was done: ``fence``, ``surrounding_text``, ``trailing_comma``."""

    value: Any
    text: str
    repairs: tuple[str, ...]


def parse(text: str) -> Any:
    """Parse strict JSON (no NaN, no Infinity). Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def repaired_values(text: str) -> Iterator[Repaired]:
    """Yield the objects and lists in ``text`` that parse, after repair where needed, in order of appearance."""
    position = 0
    unclosed = 0
    for _ in range(_MAX_STARTS):
        start = _next_start(text, position)
        if start < 0 or unclosed == _MAX_UNCLOSED:
            return
        end = _end_of_value(text, start)
        unclosed += end < 0
        found = _repair(text, start, end) if end > 0 else None
        if found is not None:
            yield found
        position = end if found is not None else start + 1


def _repair(text: str, start: int, end: int) -> Repaired | None:
    piece = text[start:end]
    without_commas = _STRING_OR_COMMA.sub(lambda match: match.group() if match.group() != "," else "", piece)
    try:
        value = parse(without_commas)
    except ValueError:
        return None
    outside = text[:start] + "\n" + text[end:]
    unfenced = _FENCE.sub("", outside)
    done = {
        "fence": unfenced != outside,
        "surrounding_text": bool(unfenced.strip()),
        "trailing_comma": without_commas != piece,
    }
    return Repaired(value, without_commas, tuple(name for name, was_done in done.items() if was_done))


def _next_start(text: str, position: int) -> int:
    places = [place for place in (text.find("{", position), text.find("[", position)) if place >= 0]
    return min(places, default=-1)


def _end_of_value(text: str, start: int) -> int:
    """Return the end of the bracketed value at ``start``, or -1; brackets inside strings do not count."""
    depth = 0
    in_string = False
    for match in _MARKS.finditer(text, start):
        mark = match.group()
        if mark == '"':
            in_string = not in_string
        elif not in_string and mark in "{[":
            depth += 1
        elif not in_string and mark in "}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
