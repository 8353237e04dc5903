"""What one character counts as when texts are compared: a table that is filled as characters are met.

A folded text has one character per original character (invisible ones become ``GONE``, blanks ``" "``) unless a
character stands for several (a ligature, a roman numeral). Terms and texts go through the same table, so a rule in
any script still matches itself.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

GONE = "\ue000"
"""Stands for a character that a reader does not see."""
BREAK = "\ue001"
"""Stands for a border that no term and no pattern can cross."""
OTHER = "\ue002"
"""Stands for every private, unassigned or surrogate character."""
NO_WORD = " "
"""Word class of a character that is a word's border by itself."""
DIGIT = "0"
"""Word class of digits, which belong to the word on either side."""

#: Scripts written without blanks between words (and Hangul, which glues its particles on): a term has no word borders.
_UNSPACED_RANGES = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u109f"  # Tibetan, Myanmar
    "\u1100-\u11ff"  # Hangul jamo
    "\u1780-\u17ff"  # Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U00020000-\U000323af"
)
UNSPACED = f"[{_UNSPACED_RANGES}]"
LETTER = rf"[^\W_{_UNSPACED_RANGES}]"
"""A letter or digit of a script that sets words apart."""

_UNSPACED = re.compile(UNSPACED)
#: Unicode's property Default_Ignorable_Code_Point (17.0); a test compares it with the data of a library.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: Not ignorable, and yet nothing to see: the Arabic stroke that only stretches a word, the head of no note.
_INVISIBLE = frozenset("\u0640\U0001d159")
BLANK_SIGN = "\u2800"
"""The empty Braille cell: looks like a blank or like nothing, as the font has it."""
#: Marks that carry no letter of their own: accents, overlays, Arabic and Hebrew points, variation selectors.
_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
    "\u180b-\u180d\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)
#: Hyphens join words as blanks do ("launch-code", "my_bomb").
_BLANK_LIKE = frozenset(f"-_{BLANK_SIGN}\u2010\u2011\u00a0\u2028\u2029\u0085")
#: Letters, numbers and vowel signs. Other signs look like letters too (a euro, a bar), but stand beside words in honest
#: text, and would hide a term's border there. "Cn": letters that are younger than Python's data.
_LOOKALIKES = re.compile("L.|N.|Mc|Cn")
_STRIPPED_SCRIPTS = frozenset({"LATIN", "GREEK", "CYRILLIC"})
#: "ich aß" is not a disguise; a term with sharp s gets a second spelling instead (see ``terms.spellings``).
_SHARP_S = frozenset("ßẞ")
#: Letters in boxes and circles, and flag letters, that Unicode does not tie to their plain form.
_BOXED_LETTERS = (0x1F150, 0x1F170, 0x1F1E6)


@functools.lru_cache(maxsize=65536)
def is_unspaced(char: str) -> bool:
    """Return whether a character belongs to a script written without blanks between words."""
    return _UNSPACED.match(char) is not None


def is_ignorable(char: str) -> bool:
    """Return whether Unicode says that a character is not to be seen where it is not supported."""
    return _IGNORABLE.match(char) is not None


def is_mark(char: str) -> bool:
    """Return whether a dropped character belongs to the letter before it."""
    return _MARKS.match(char) is not None


@functools.lru_cache(maxsize=65536)
def script(char: str) -> str:
    """Return the script of a letter (first word of its Unicode name, styled letters resolved), "" for the rest."""
    plain = unicodedata.normalize("NFKC", char)[:1]
    if plain.isascii():
        return "LATIN" if plain.isalpha() else ""
    if unicodedata.category(plain)[0] not in "LM":
        return ""
    return unicodedata.name(plain, "").partition(" ")[0]


class _WordClasses(dict[int, str]):
    """Gives every script that sets words apart a character of its own, when one of its letters is first met."""

    def __init__(self) -> None:
        super().__init__()
        # An ASCII sign for the commonest script: ASCII texts are then classed by a fast path of str.translate.
        self._scripts: dict[str, str] = {"LATIN": "a"}

    def __missing__(self, codepoint: int) -> str:
        char = chr(codepoint)
        self[codepoint] = found = self._find(char)
        return found

    def _find(self, char: str) -> str:
        if is_unspaced(char):
            return NO_WORD
        if char.isdigit():
            return DIGIT
        name = script(char)
        return self._scripts.setdefault(name, chr(0x100 + len(self._scripts))) if name else NO_WORD


_WORD_CLASSES = _WordClasses()


def word_classes(text: str) -> str:
    """Return what each character counts as at a word's border: ``NO_WORD``, ``DIGIT``, or one sign per script."""
    return text.translate(_WORD_CLASSES)


def is_glued(left: str, right: str) -> bool:
    """Return whether two neighbours of these word classes belong to one word."""
    return left != NO_WORD and right != NO_WORD and (left in (right, DIGIT) or right == DIGIT)


@functools.cache
def _simplified() -> Callable[[str], str]:
    import opencc

    convert: Callable[[str], str] = opencc.OpenCC("t2s").convert
    return convert


@functools.cache
def _lookalike() -> Callable[[str], str]:
    from disarm import normalize_confusables

    # By its looks, a Thai or Arabic digit may be a letter: "b๐mb".
    return functools.partial(normalize_confusables, target_script="latin", digit_policy="tr39")


def _is_gone(char: str, category: str) -> bool:
    return char in _INVISIBLE or category in {"Cf", "Cc"} or is_mark(char)


def _is_blank(char: str, category: str) -> bool:
    return char in _BLANK_LIKE or category == "Zs" or char.isspace()


def _strip_accent(char: str) -> str:
    if unicodedata.name(char, "").partition(" ")[0] not in _STRIPPED_SCRIPTS:
        return char
    return "".join(part for part in unicodedata.normalize("NFD", char) if not is_mark(part)) or char


def _latin_lookalike(char: str) -> str:
    if char.isascii() or char in _SHARP_S or not _LOOKALIKES.match(unicodedata.category(char)):
        return char
    latin = _lookalike()(char)
    return latin if len(latin) == 1 and latin.isascii() and latin.isalpha() else char


def _boxed_letter(char: str) -> str | None:
    for first in _BOXED_LETTERS:
        if 0 <= ord(char) - first < 26:
            return chr(ord("a") + ord(char) - first)
    return None


def _fold_visible(char: str) -> str:
    if (letter := _boxed_letter(char)) is not None:
        return letter
    folded = []
    for compatible in unicodedata.normalize("NFKC", char):
        for part in _strip_accent(compatible):
            # The look-alike is sought before the case is folded: a capital Greek nu is an N, a small one a v.
            folded.append("ß" if part in _SHARP_S else _latin_lookalike(part).casefold())
    text = "".join(_latin_lookalike(part) for part in "".join(folded))
    text = "".join(part for part in text if not is_mark(part)) or GONE
    if is_unspaced(text[0]):
        text = _simplified()(text)
    return "".join(" " if _is_blank(part, unicodedata.category(part)) else part for part in text)


def fold_char(char: str) -> str:
    """Return what ``char`` counts as: one character, or several for a ligature."""
    if is_ignorable(char):
        return GONE
    category = unicodedata.category(char)
    if category in {"Co", "Cn", "Cs"}:
        latin = char if category == "Cs" else _latin_lookalike(char)
        return OTHER if latin == char else latin.casefold()
    if _is_blank(char, category):
        return " "
    return GONE if _is_gone(char, category) else _fold_visible(char)


def fold(text: str) -> str:
    """Return the folded text; longer than ``text`` when it holds ligatures, never shorter."""
    if text.isascii():
        return text.translate(_ASCII)
    # One look-up in an array per character: a dictionary with str.translate takes ten times as long.
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    folded = _CODES[codes]
    if folded.max() >= _NEW:
        for code in np.unique(codes[folded == _NEW]):
            _learn(int(code))
        folded = _CODES[codes]
        if (folded == _SEVERAL).any():
            return "".join(map(folded_char, text))
    return folded.tobytes().decode("utf-32-le")


def folded_char(char: str) -> str:
    """Return what one character counts as."""
    code = int(_CODES[ord(char)])
    if code == _NEW:
        code = _learn(ord(char))
    return _EXPANSIONS[char] if code == _SEVERAL else chr(code)


def _learn(codepoint: int) -> int:
    """Fold a character that is met for the first time; safe to do twice at once."""
    char = chr(codepoint)
    folded = fold_char(char)
    if len(folded) != 1:
        _EXPANSIONS[char] = folded
    code = ord(folded) if len(folded) == 1 else _SEVERAL
    _CODES[codepoint] = code
    return code


_NEW = 0x110000
_SEVERAL = _NEW + 1
_CODES: npt.NDArray[np.uint32] = np.full(_NEW, _NEW, np.uint32)
_EXPANSIONS: dict[str, str] = {}
_ASCII = {code: fold_char(chr(code)) for code in range(128)}
