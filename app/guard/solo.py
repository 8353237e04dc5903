"""Letters that stand alone: "i g n o r e", "b.o.m.b".

A run is a chain of single letters or digits, each set apart from the next by one to three blanks or ornaments. Its
letters, put together, are searched like a text of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.guard.folding import LETTER, is_unspaced

_SEPARATORS = " *.·•|/+~,"
SEPARATORS_AT_MOST = 3
_APART = f"[{re.escape(_SEPARATORS)}]{{1,{SEPARATORS_AT_MOST}}}"
_RUN = "(?<!{letter}){letter}(?:{apart}{letter}(?!{letter}))+"
#: Every run of three letters or more holds this; the scan for it begins with few characters.
_HINT = "[{separators}]{letter}{apart}{letter}(?!{letter})"


def _compile(source: str, letter: str) -> re.Pattern[str]:
    return re.compile(source.format(letter=letter, apart=_APART, separators=re.escape(_SEPARATORS)))


_ASCII_LETTER = "[a-z0-9]"
_RUNS = {True: _compile(_RUN, _ASCII_LETTER), False: _compile(_RUN, LETTER)}
_HINTS = {True: _compile(_HINT, _ASCII_LETTER), False: _compile(_HINT, LETTER)}


@dataclass(frozen=True, slots=True)
class Run:
    """``letters[i]`` stands at ``positions[i]`` of the skeleton. ``open``: text to come may still lengthen the run."""

    letters: str
    positions: tuple[int, ...]
    open: bool


def squeeze(term: str) -> str | None:
    """Return a term's form as single letters put together, None when it holds anything but letters and blanks."""
    letters = term.replace(" ", "")
    if letters.isascii():
        return letters if letters.isalnum() else None
    return letters if all(_is_letter(char) for char in letters) else None


def runs(text: str, final: bool) -> Iterator[Run]:
    """Yield every run of three or more single letters in a skeleton (of two, where there is a longer one)."""
    is_ascii = text.isascii()
    if _HINTS[is_ascii].search(text) is None:
        return
    for found in _RUNS[is_ascii].finditer(text):
        positions = tuple(i for i in range(found.start(), found.end()) if text[i] not in _SEPARATORS)
        is_open = not final and _only_separators(text, found.end())
        yield Run("".join(text[i] for i in positions), positions, is_open)


def tail(text: str, at_most: int) -> Run:
    """Return the run, even of one letter or none, that reaches the end of a skeleton; its last ``at_most`` letters."""
    positions: list[int] = []
    end = len(text)
    while len(positions) < at_most:
        at = _letter_before(text, end, required=bool(positions))
        if at is None:
            break
        positions.append(at)
        end = at
    positions.reverse()
    return Run("".join(text[i] for i in positions), tuple(positions), open=True)


def _letter_before(text: str, end: int, required: bool) -> int | None:
    bare = end
    while bare > 0 and end - bare < SEPARATORS_AT_MOST and text[bare - 1] in _SEPARATORS:
        bare -= 1
    if bare == 0 or (required and bare == end) or not _is_letter(text[bare - 1]):
        return None
    return bare - 1 if bare == 1 or not _is_letter(text[bare - 2]) else None


def _only_separators(text: str, start: int) -> bool:
    return len(text) - start <= SEPARATORS_AT_MOST and all(char in _SEPARATORS for char in text[start:])


def _is_letter(char: str) -> bool:
    return char.isalnum() and not is_unspaced(char)
