"""Edits of a text, and the way back from the edited text's characters to the original's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Edit = tuple[int, int, str]
"""``text[start:end]`` becomes the replacement; edits are in order and do not overlap."""


class OffsetMap:
    """Maps characters of an edited text back to spans of the text before the edits."""

    __slots__ = ("_edits", "_starts")

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._starts: list[int] = []
        self._edits: list[tuple[int, int, int]] = []
        shift = 0
        for start, end, replacement in edits:
            self._starts.append(start + shift)
            self._edits.append((start, end, len(replacement)))
            shift += len(replacement) - (end - start)

    def span(self, index: int) -> tuple[int, int]:
        """Return ``(start, end)`` in the text before of the character at ``index`` of the text after."""
        at = bisect_right(self._starts, index) - 1
        if at < 0:
            return index, index + 1
        start, end, length = self._edits[at]
        offset = index - self._starts[at]
        if offset < length:
            return start, end
        origin = end + offset - length
        return origin, origin + 1


def apply(text: str, edits: Iterable[Edit]) -> tuple[str, OffsetMap | None]:
    """Return the edited text and its map, None when there was nothing to edit."""
    listed = list(edits)
    if not listed:
        return text, None
    pieces: list[str] = []
    position = 0
    for start, end, replacement in listed:
        pieces += (text[position:start], replacement)
        position = end
    pieces.append(text[position:])
    return "".join(pieces), OffsetMap(listed)
