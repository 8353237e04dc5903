"""Texts that show nothing."""

from __future__ import annotations

import unicodedata

# Controls, invisible characters, blanks, and marks without a letter to stand on.
_UNSEEN = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Me"})
#: Letters and symbols whose glyph is empty: Hangul fillers, the braille blank.
_EMPTY_GLYPHS = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def is_blank(text: str) -> bool:
    """Tell whether a text holds no character that a reader sees."""
    return all(char in _EMPTY_GLYPHS or unicodedata.category(char) in _UNSEEN for char in text)
