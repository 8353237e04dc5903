"""Words of a text, counted alike in scripts with and without blanks between them."""

from __future__ import annotations

import re
import unicodedata

#: Scripts without blanks between words: Chinese characters, kana, Thai, Lao, Khmer and Burmese letters.
_SOLO = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(rf"[{_SOLO}]|[^\W{_SOLO}]+(?:['’-][^\W{_SOLO}]+)*")
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n\s*")
_KEPT_CONTROLS = frozenset("\n\t\u200c\u200d")


def has_words(text: str, least: int) -> bool:
    """Tell whether a text has at least ``least`` words; a character of a script without blanks counts as one."""
    return any(count >= least for count, _ in enumerate(_WORD.finditer(text), 1))


def normalised(text: str) -> str:
    """Return a text in one form of Unicode (NFC), without control characters, runs of blanks and empty lines."""
    composed = unicodedata.normalize("NFC", text.replace("\r", "\n"))
    kept = "".join(c for c in composed if c in _KEPT_CONTROLS or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    return _LINES.sub("\n", _BLANKS.sub(" ", kept)).strip()


def first_words(text: str, count: int) -> str:
    """Return the text up to the end of its word number ``count``."""
    end = 0
    for number, word in enumerate(_WORD.finditer(text), 1):
        if number > count:
            return text[:end]
        end = word.end()
    return text
