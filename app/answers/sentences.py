"""Cutting an answer into sentences: English and Chinese, lists, code blocks, citation marks."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Closed or, at the end of a cut answer, still open.
_CODE = re.compile(r"(?m)^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL)
_ITEM = re.compile(r"\s*(?:(?:[-*+•>]|#{1,6}|\d{1,3}[.)、])\s+)*")
# A stop, what closes after it, and the citation marks that belong to it.
_STOP = re.compile(r"(?:[。！？；…]+|[.!?]+)[\"'”’』」）)\]]*(?:\s*\[\d{1,3}\])*")
_MARK = re.compile(r"\[\d{1,3}\]")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "e.g i.e etc vs cf al approx dr mr mrs ms prof st no nos fig figs vol ch sec inc ltd co dept est "
        "jan feb mar apr jun jul aug sep sept oct nov dec",
    )
)
_LAST_WORD = re.compile(r"[\w.]*$")
_JSON_PART = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<key>\s*:)?|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<mark>[{}\[\],])',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """``start`` and ``end`` index characters of the answer; ``text`` is without citation marks.

    ``path`` is the JSON pointer of a value of a JSON answer.
    """

    start: int
    end: int
    text: str
    path: str | None = None


def split_sentences(answer: str, limit: int) -> list[Sentence]:
    """Return at most ``limit`` sentences of ``answer`` that hold at least one letter or digit.

    A line ends a sentence, a block of code is one, list markers belong to none.
    """
    found: list[Sentence] = []
    for start, end in _spans(answer):
        text = _MARK.sub("", answer[start:end]).strip()
        if any(character.isalnum() for character in text):
            found.append(Sentence(start, end, text))
            if len(found) == limit:
                break
    return found


def _spans(answer: str) -> Iterator[tuple[int, int]]:
    position = 0
    for block in _CODE.finditer(answer):
        yield from _prose(answer, position, block.start())
        yield _trimmed(answer, block.start(2), block.end(2))
        position = block.end()
    yield from _prose(answer, position, len(answer))


def _prose(answer: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    position = start
    for line in answer[start:end].split("\n"):
        line_end = position + len(line)
        item = _ITEM.match(line)
        yield from _line(answer, position + (item.end() if item else 0), line_end)
        position = line_end + 1


def _line(answer: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for stop in _STOP.finditer(answer, start, end):
        if _ends_sentence(answer, stop, end):
            yield _trimmed(answer, start, stop.end())
            start = stop.end()
    if start < end:
        yield _trimmed(answer, start, end)


def _ends_sentence(answer: str, stop: re.Match[str], end: int) -> bool:
    if stop.group()[0] not in ".!?":
        return True
    after = answer[stop.end() : end]
    if after and not after[0].isspace() and after[0].isascii():
        return False  # 2.60.0, values.yaml
    if stop.group()[0] != ".":
        return True
    return not _is_abbreviation(answer, stop.start(), after.lstrip())


def _is_abbreviation(answer: str, place: int, after: str) -> bool:
    word = _LAST_WORD.search(answer, max(0, place - 16), place)
    last = word.group() if word else ""
    initial = len(last) == 1 and last.isupper() and last.isascii() and last != "I"
    return bool(after) and (last.lower() in _ABBREVIATIONS or initial or after[0].islower())


def _trimmed(answer: str, start: int, end: int) -> tuple[int, int]:
    while start < end and answer[start].isspace():
        start += 1
    while end > start and answer[end - 1].isspace():
        end -= 1
    return start, end


def split_values(answer: str, limit: int) -> list[Sentence]:
    """Return the texts and numbers of a JSON answer, each with its key in front, as if they were sentences.

    The answer may be cut or no JSON at all; paths are then those of what can be told.
    """
    found: list[Sentence] = []
    place = _Place()
    for part in _JSON_PART.finditer(answer):
        if part["mark"] is not None:
            place.pass_mark(part["mark"])
            continue
        if part["key"] is not None:
            place.pass_key(part["text"])
            continue
        name = "number" if part["number"] is not None else "text"
        if any(character.isalnum() for character in part[name]):
            text = f"{place.key}: {part[name]}" if place.key else part[name]
            found.append(Sentence(part.start(name), part.end(name), text, place.pointer))
        if len(found) == limit:
            break
    return found


class _Place:
    """Where in a JSON value a reader stands; ``key`` is the last key that was passed, as it is spelled."""

    def __init__(self) -> None:
        self.key = ""
        self._steps: list[str | int] = []

    @property
    def pointer(self) -> str:
        """The JSON pointer of the value at this place."""
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self._steps)

    def pass_mark(self, mark: str) -> None:
        """Step over a brace, a bracket or a comma."""
        if mark in "{[":
            self._steps.append("" if mark == "{" else 0)
        elif self._steps and mark in "}]":
            self._steps.pop()
        elif self._steps and isinstance(self._steps[-1], int):
            self._steps[-1] += 1

    def pass_key(self, spelling: str) -> None:
        """Step over a key."""
        self.key = spelling
        with contextlib.suppress(ValueError):
            spelling = json.loads(f'"{spelling}"', strict=False)
        if self._steps:
            self._steps[-1] = spelling
