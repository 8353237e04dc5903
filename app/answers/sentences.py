"""Cutting an answer into sentences: English and Chinese, lists, code blocks, citation marks."""

from __future__ import annotations

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
_JSON_PART = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<key>\s*:)?|(?P<number>-?\d+(?:\.\d+)?)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sentence:
    """``start`` and ``end`` index characters of the answer; ``text`` is without citation marks."""

    start: int
    end: int
    text: str


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
    """Return the texts and numbers of a JSON answer, each with its key in front, as if they were sentences."""
    found: list[Sentence] = []
    key = ""
    for part in _JSON_PART.finditer(answer):
        if part["key"] is not None:
            key = part["text"]
            continue
        name = "number" if part["number"] is not None else "text"
        if any(character.isalnum() for character in part[name]):
            found.append(Sentence(part.start(name), part.end(name), f"{key}: {part[name]}" if key else part[name]))
        if len(found) == limit:
            break
    return found
