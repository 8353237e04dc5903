"""Words of a text, counted alike in scripts with and without blanks between them."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

#: Scripts without blanks between words: Chinese characters, kana, Thai, Lao, Khmer and Burmese letters.
_SOLO = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(rf"[{_SOLO}]|[^\W{_SOLO}]+(?:['’-][^\W{_SOLO}]+)*")
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n\s*")
#: Longer than most texts, and read within a millisecond or two.
_PIECE_CHARS = 1 << 16
_KEPT_CONTROLS = frozenset("\n\t\u200c\u200d")


def has_words(text: str, least: int) -> bool:
    """Tell whether a text has at least ``least`` words; a character of a script without blanks counts as one."""
    return any(count >= least for count, _ in enumerate(_WORD.finditer(text), 1))


def normalised(text: str) -> str:
    """Return a text in one form of Unicode (NFC), without control characters, runs of blanks and empty lines."""
    return _plain(text).strip()


def normalised_start(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text's normal form, without reading much more than they take."""
    return _start(text, most, _plain)


def folded_start(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text with runs of blanks and empty lines folded, likewise."""
    return _start(text, most, _folded)


def _start(text: str, most: int, fold: Callable[[str], str]) -> str:
    kept, length = list[str](), 0
    for begin in range(0, len(text), _PIECE_CHARS):
        kept.append(fold(text[begin : begin + _PIECE_CHARS]))
        length += len(kept[-1])
        # Blanks at both ends of a piece may fall away beside those of the next one.
        if length - 2 * len(kept) > most:
            break
    return fold("".join(kept)).strip()[:most].rstrip()


def _plain(text: str) -> str:
    return _folded(unicodedata.normalize("NFC", _unseen().sub("", text.replace("\r", "\n"))))


def _folded(text: str) -> str:
    return _LINES.sub("\n", _BLANKS.sub(" ", text.replace("\r", "\n")))


@cache
def _unseen() -> re.Pattern[str]:
    """Return what is dropped of a text; characters are looked up once, since texts may be megabytes of them."""
    found = (c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Cc", "Cf", "Cs"))
    return re.compile(f"[{re.escape(''.join(c for c in found if c not in _KEPT_CONTROLS))}]+")


def first_words(text: str, count: int) -> str:
    """Return the text up to the end of its word number ``count``."""
    end = 0
    for number, word in enumerate(_WORD.finditer(text), 1):
        if number > count:
            return text[:end]
        end = word.end()
    return text
