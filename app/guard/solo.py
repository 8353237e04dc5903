"""Letters that stand alone ("i g n o r e", "b.o.m.b", "(b)(o)(m)(b)") and signs between words ("launch/code").

A run is a chain of single letters or digits, each set apart from the next by one to three blanks or signs. Its
letters, put together, are searched like a text of their own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.guard.folding import LETTER, is_unspaced
from app.guard.offsets import Edit

SEPARATORS_AT_MOST = 3
#: Punctuation and symbols by their blocks; not "all but letters", since the vowel signs of Indian scripts are none.
_ASCII_SIGNS = r"!-/:-@\[-`{-~"
_SIGNS = (
    rf"{_ASCII_SIGNS}\u00a1-\u00bf×÷\u2010-\u205e\u20a0-\u20cf\u2190-\u2bff\u3001-\u3003\u3008-\u3020"
    r"\U0001f000-\U0001faff"
)
_SEPARATOR = re.compile(f"[ {_SIGNS}]")
_RUN = "(?<!{letter}){letter}(?:[ {signs}]{{1,3}}{letter}(?!{letter}))+"
#: Every run of three letters or more holds this; the scan for it begins with few characters.
_HINT = "[ {signs}]{letter}[ {signs}]{{1,3}}{letter}(?!{letter})"
#: Signs that stand between two words like a blank; at the end of a text that goes on, a word may still follow. They
#: begin with a plain class, which the engine looks for quickly.
_JOINT = "[{signs}](?<={letter}.)[{signs}]{{0,2}}(?={letter})"
_OPEN_JOINT = "[{signs}](?<={letter}.)[{signs}]{{0,2}}(?={letter}|\\Z)"


def _compile(source: str) -> dict[bool, re.Pattern[str]]:
    """Return the pattern for ASCII texts (True), where it is much quicker, and for all others."""
    return {
        True: re.compile(source.format(letter="[a-z0-9]", signs=_ASCII_SIGNS)),
        False: re.compile(source.format(letter=LETTER, signs=_SIGNS)),
    }


_RUNS = _compile(_RUN)
_HINTS = _compile(_HINT)
_JOINTS = {True: _compile(_JOINT), False: _compile(_OPEN_JOINT)}


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
        positions = tuple(i for i in range(found.start(), found.end()) if not _SEPARATOR.match(text[i]))
        is_open = not final and _only_separators(text, found.end())
        yield Run("".join(text[i] for i in positions), positions, is_open)


def joined(runs: Sequence[Run]) -> Iterator[Edit]:
    """Yield the edits that put the letters of each run together, in their place in the text."""
    for run in runs:
        for left, right in itertools.pairwise(run.positions):
            yield left + 1, right, ""


def parted(text: str, final: bool) -> Iterator[Edit]:
    """Yield the edits that set words apart by a blank where signs stand between them."""
    for found in _JOINTS[final][text.isascii()].finditer(text):
        yield found.start(), found.end(), " "


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
    while bare > 0 and end - bare < SEPARATORS_AT_MOST and _SEPARATOR.match(text[bare - 1]):
        bare -= 1
    if bare == 0 or (required and bare == end) or not _is_letter(text[bare - 1]):
        return None
    return bare - 1 if bare == 1 or not _is_letter(text[bare - 2]) else None


def _only_separators(text: str, start: int) -> bool:
    return len(text) - start <= SEPARATORS_AT_MOST and all(map(_SEPARATOR.match, text[start:]))


def _is_letter(char: str) -> bool:
    return char.isalnum() and not is_unspaced(char)
