"""Words for full-text search, the same in every store: Chinese is segmented, English loses case and endings."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_MAX_TERM_CHARS = 64
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_HANGUL = "\u3040-\u30ff\uac00-\ud7a3"
_RUN = re.compile(rf"(?P<han>[{_HAN}]+)|(?P<pairs>[{_KANA_HANGUL}]+)|[^\W_{_HAN}{_KANA_HANGUL}]+")
_STOP_ENGLISH = """
a an and are as at be but by do does for from had has have how i if in into is it its me my no not of on or our s so
such t that the their then there these they this to was we were what when where which who why will with you your can
could should would
"""
_STOP_CHINESE = """
的 了 和 是 在 我 有 就 不 人 都 一 一个 上 也 很 到 说 要 去 你 会 着 没有 看 这 那 吗 呢 吧 啊 与 及 或 被 把 让 什么
怎么 如何 哪些 哪个 哪里 为什么 多少 请问 可以 能 用
"""
_STOP = frozenset((_STOP_ENGLISH + _STOP_CHINESE).split())


def tokenize(text: str) -> list[str]:
    """Return the search terms of a text, in order and with repeats.

    Full-width forms and case are folded; Chinese runs are cut as a search engine does (overlapping words), other
    scripts without word borders into pairs; stop words are dropped.
    """
    terms: list[str] = []
    for match in _RUN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        terms += _split(match)
    return [term for term in terms if term not in _STOP]


def unique_terms(text: str, limit: int) -> list[str]:
    """Return each term of a question once; of a long question the first and the last of them."""
    terms = list(dict.fromkeys(tokenize(text)))
    if len(terms) <= limit:
        return terms
    head = limit // 2
    return terms[:head] + terms[head - limit :]


def _split(match: re.Match[str]) -> list[str]:
    run = match.group()
    if match.lastgroup == "han":
        return _cut(run)
    if match.lastgroup == "pairs":
        return [run[index : index + 2] for index in range(max(1, len(run) - 1))]
    return [_stem(run)[:_MAX_TERM_CHARS]] if run not in _STOP else []


def _cut(run: str) -> list[str]:
    import rjieba

    words: list[str] = rjieba.cut_for_search(run)
    return words


@lru_cache(maxsize=16384)
def _stem(word: str) -> str:
    """Take English inflections off: steps 1a to 1c and 5a of M. F. Porter, "An algorithm for suffix stripping" (1980).

    Derivations ("relational") stay: for search they cost more precision than they bring recall.
    """
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    word = _without_plural(word)
    word = _without_tense(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _without_plural(word: str) -> str:
    if word.endswith("sses") or (word.endswith("ies") and len(word) > 4):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_tense(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if len(word) > 4 else word
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1 and _has_vowel(stem):
            return _mended(stem)
    return word


def _mended(stem: str) -> str:
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    doubled = stem[-1] == stem[-2] and stem[-1] not in "lsz"
    return stem[:-1] if doubled and len(stem) > 3 else stem


def _has_vowel(stem: str) -> bool:
    return any(char in "aeiouy" for char in stem)
