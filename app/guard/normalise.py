"""The form of a text in which rules are sought, and the way back to the original's characters.

The original is never changed: a model gets what the caller wrote. The skeleton drops what a reader does not see,
folds what looks alike, and sets words apart by exactly one blank; Chinese and its kin lose blanks and ornaments
between characters. On a stream a gap of more than ``MAX_GAP`` characters parts what stands on its sides, so that
what has to be held back is bounded; everything that a skeleton depends on lies within ``BASE_CONTEXT`` characters.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

from app.guard.folding import BREAK, GONE, UNSPACED, fold, folded_char, is_ignorable, is_mark, is_unspaced, script
from app.guard.offsets import Edit, OffsetMap, apply

MAX_GAP = 64
"""Longest run (characters) of blanks, invisible characters and ornaments that a disguise may hold, on a stream."""
BASE_CONTEXT = 384
"""How many released characters a stream's judgement needs to see borders, entities and gaps as they are."""
NEIGHBOUR_REACH = 48
"""How far (characters) a letter's neighbour may be to tell what script a text is written in."""

_ORNAMENTS = "*.·•|/+~"
_GAP_CHARS = f" {GONE}"
_GAP = re.compile(f"[{_GAP_CHARS}]{{2,}}|{GONE}")
_FILLER = f"[{_GAP_CHARS}{re.escape(_ORNAMENTS)}]"
#: A stretch that may have to change: two characters or more, an invisible one, or one between unspaced characters.
#: It begins with a plain class, which the engine looks for quickly.
_STRETCH = re.compile(f"{_FILLER}(?:{_FILLER}++|(?<={GONE})|(?<={UNSPACED}.)(?={UNSPACED}))")

_VOICED = "[\u3046-\u3096\u309d\u30a6-\u30fd\uff73-\uff8e]"
_REWRITE = re.compile(
    r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,24};)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"
    f"|{_VOICED}[\u3099\u309a\uff9e\uff9f]"
    "|[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[\uac00-\ud7a3][\u11a8-\u11c2]"
)
_REWRITE_HINT = re.compile("[&\\\\\u1100-\u11c2\u3099\u309a\uff9e\uff9f]")
#: The end of a window that the next characters may still turn into one of the above.
_UNFINISHED = re.compile(
    r"(?:&(?:#(?:[0-9]{0,7}|[xX][0-9a-fA-F]{0,6})|[A-Za-z][A-Za-z0-9]{0,24})?"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?|\\(?:u[0-9a-fA-F]{0,3})?"
    f"|{_VOICED}|[\u1100-\u1112][\u1161-\u1175]?|[\uac00-\ud7a3])\\Z"
)
_UNFINISHED_REACH = 32


class Skeleton:
    """A text as rules see it.

    ``text`` is the skeleton; ``raw`` the original that it was made of; ``hidden`` says whether characters that no
    reader sees were dropped.
    """

    __slots__ = ("_maps", "hidden", "raw", "text")

    def __init__(self, raw: str, text: str, maps: tuple[OffsetMap | None, ...], hidden: bool = False) -> None:
        self.raw = raw
        self.text = text
        self.hidden = hidden
        self._maps = tuple(step for step in maps if step is not None)

    def edited(self, edits: Iterable[Edit]) -> Skeleton:
        """Return another form of the same original: this one with ``edits`` made to its text."""
        text, step = apply(self.text, edits)
        return self if step is None else Skeleton(self.raw, text, (*self._maps, step), self.hidden)

    def start(self, index: int) -> int:
        """Return the original's index of the skeleton's character at ``index``."""
        return self._origin(index)[0]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the original's span of ``text[start:end]``: what is hidden inside, marks on its last letter."""
        first = self._origin(start)[0]
        last = self._origin(end - 1)[1]
        while last < len(self.raw) and is_mark(self.raw[last]):
            last += 1
        return first, last

    def hides_before(self, index: int) -> bool:
        """Return whether the character before ``index`` is parted from the one there by what no reader sees."""
        gap = self.raw[self._origin(index - 1)[1] : self.start(index)]
        return any(is_ignorable(char) or not is_mark(char) for char in gap)

    def _origin(self, index: int) -> tuple[int, int]:
        start, end = index, index + 1
        for step in reversed(self._maps):
            start, end = step.span(start)[0], step.span(end - 1)[1]
        return start, end


def skeleton(raw: str, *, bounded: bool = False, final: bool = True) -> Skeleton:
    """Return the skeleton of ``raw``.

    ``bounded`` applies ``MAX_GAP``. With ``final`` false more text is to come: the gap at the end is left out, since
    its meaning hangs on what follows; the caller has cut off ``unfinished`` characters before.
    """
    rewritten, rewrites = apply(raw, _rewrites(raw))
    folded = fold(rewritten)
    expansions = None
    if len(folded) != len(rewritten):
        expansions = OffsetMap(list(_expansions(rewritten)))
    if not final:
        folded = _trim(folded)
    text, gaps = apply(folded, _gaps(folded, bounded))
    return Skeleton(raw, text, (rewrites, expansions, gaps), hidden=GONE in folded)


def unfinished(raw: str) -> int:
    """Return how many characters at the end of a window may still become part of an entity, escape or syllable."""
    found = _UNFINISHED.search(raw, max(0, len(raw) - _UNFINISHED_REACH))
    return len(raw) - found.start() if found else 0


def neighbour_script(raw: str, index: int) -> str:
    """Return the script of the last letter before ``index``, "" when there is none within ``NEIGHBOUR_REACH``."""
    for char in reversed(raw[max(0, index - NEIGHBOUR_REACH) : index]):
        if name := script(char):
            return name
    return ""


def _rewrites(raw: str) -> Iterator[Edit]:
    if raw.isascii() and "&" not in raw and "\\" not in raw:
        return
    if _REWRITE_HINT.search(raw) is None:
        return
    for found in _REWRITE.finditer(raw):
        replacement = _decoded(found.group())
        if replacement != found.group():
            yield found.start(), found.end(), replacement


def _decoded(source: str) -> str:
    if source[0] == "&":
        return html.unescape(source)
    if source[0] == "\\":
        units = b"".join(int(unit, 16).to_bytes(2, "big") for unit in source.split("\\u")[1:])
        return units.decode("utf-16-be", "replace")
    return unicodedata.normalize("NFKC", source)


def _expansions(text: str) -> Iterator[Edit]:
    for index, char in enumerate(text):
        folded = folded_char(char)
        if len(folded) != 1:
            yield index, index + 1, folded


def _trim(folded: str) -> str:
    """Cut the gap off the end, unless it is so long that it parts whatever its sides are."""
    bare = folded.rstrip(_GAP_CHARS)
    if len(folded) - len(bare) > MAX_GAP:
        return folded
    inner = folded.rstrip(_GAP_CHARS + _ORNAMENTS)
    if len(folded) - len(inner) <= MAX_GAP and inner and is_unspaced(inner[-1]):
        return inner
    return bare


def _gaps(folded: str, bounded: bool) -> Iterator[Edit]:
    if folded.isascii():
        if "  " in folded:
            yield from _blank_gaps(folded, 0, len(folded), bounded)
        return
    for found in _STRETCH.finditer(folded):
        start, end = found.span()
        is_bridge = not bounded or end - start <= MAX_GAP
        if is_bridge and _joins_unspaced(folded, start, end):
            yield start, end, ""
        else:
            yield from _blank_gaps(folded, start, end, bounded)


def _blank_gaps(folded: str, start: int, end: int, bounded: bool) -> Iterator[Edit]:
    for found in _GAP.finditer(folded, start, end):
        first, last = found.span()
        if bounded and last - first > MAX_GAP:
            yield first, last, BREAK
        else:
            yield first, last, " " if " " in found.group() else ""


def _joins_unspaced(folded: str, start: int, end: int) -> bool:
    return start > 0 and end < len(folded) and is_unspaced(folded[start - 1]) and is_unspaced(folded[end])
