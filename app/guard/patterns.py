"""Regular expressions in linear time (RE2), each with a longest match and all of them with a time bound.

A pattern matches at a position when its preferred match from there is at most ``max_chars`` long; matches at every
position count, except those that lie inside an earlier match of the same pattern. So what is found does not depend
on where a text begins or ends, and a stream finds what the whole text would.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.messages import Action

_PROGRAM_BYTES = 4 << 20


class RuleFailedError(Exception):
    """A rule could not be evaluated; the policy says whether the text passes."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One compiled pattern. ``max_chars`` bounds a match; ``regex`` works on UTF-8."""

    rule: str
    category: str
    action: Action
    max_chars: int
    regex: Any


class Budget:
    """CPU time of this thread that the patterns of one request may take together."""

    def __init__(self, milliseconds: float) -> None:
        self._until = time.thread_time() + milliseconds / 1000

    def check(self) -> None:
        """Raise RuleFailedError when the time is used up."""
        if time.thread_time() > self._until:
            raise RuleFailedError("the patterns took longer than patternBudgetMilliseconds")


class Utf8:
    """A text as bytes, with the way between byte and character indexes. Lone surrogates count as ``?``."""

    def __init__(self, text: str) -> None:
        self.data = text.encode("utf-8", "replace")
        self.chars = len(text)
        self._starts: list[int] | None = None
        self._is_plain = len(self.data) == self.chars

    def char(self, byte: int) -> int:
        """Return the index of the character that begins at ``byte``."""
        return byte if self._is_plain else bisect_left(self._offsets(), byte)

    def byte(self, char: int) -> int:
        """Return where character ``char`` begins; the end of the text for an index past it."""
        if char >= self.chars:
            return len(self.data)
        return char if self._is_plain else self._offsets()[char]

    def next(self, byte: int) -> int:
        """Return where the character after the one at ``byte`` begins."""
        return self.byte((byte if self._is_plain else bisect_right(self._offsets(), byte) - 1) + 1)

    def _offsets(self) -> list[int]:
        if self._starts is None:
            self._starts = [at for at, unit in enumerate(self.data) if unit & 0xC0 != 0x80]
        return self._starts


def compile_regex(source: str) -> Any:
    """Compile ``source``. Raises ValueError that says what is wrong with it, without the pattern itself."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES
    try:
        regex = re2.compile(source.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    if regex.fullmatch(b"") is not None:
        raise ValueError("it matches the empty text")
    return regex


def matches(pattern: Pattern, text: Utf8, resolved: int, budget: Budget) -> Iterator[tuple[int, int]]:
    """Yield ``(start, end)`` in characters of every match that begins before character ``resolved``."""
    budget.check()
    covered = 0
    at = 0
    while (found := pattern.regex.search(text.data, at)) is not None:
        begin, stop = found.span()
        start = text.char(begin)
        if start >= resolved:
            return
        at = text.next(begin)
        end = _bounded_end(pattern, text, begin, stop)
        if end is not None and end > max(covered, start):
            covered = end
            yield start, end
        if at >= len(text.data):
            return
        budget.check()


def _bounded_end(pattern: Pattern, text: Utf8, begin: int, stop: int) -> int | None:
    """Return the match's end in characters; a match that is too long is sought again inside the bound."""
    last = text.byte(text.char(begin) + pattern.max_chars)
    if stop > last:
        shorter = pattern.regex.match(text.data, begin, last)
        if shorter is None:
            return None
        stop = shorter.end()
    return text.char(stop)
