"""Cutting a document into passages: at headings, then at sentences, with overlap, in English and Chinese.

Sizes are estimated in embedder tokens, since a store's passages must not depend on which tokenizer is at hand: one per
Chinese or Japanese character and per mark, one per started five letters of a word. ``ingestion/indexer.py`` cuts again
what overflows the embedder's real window, so no text is lost to a low estimate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.config.retrieval import ChunkingConfig

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_WIDE}]|[^\W{_WIDE}]+|[^\w\s]")
_WORD = re.compile(rf"\s*(?:[{_WIDE}]|[^\s{_WIDE}]{{1,20}})")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
# A sentence ends after 。！？ and the like, after . ! ? with a blank behind it, and at a line's end.
_SENTENCE = re.compile(r"[^\n]*?(?:[。！？；…]+[”’」』）)\"']*|(?<![.!?])[.!?]++[\"')\]]*+(?=\s)|\n+|$)", re.DOTALL)
_LETTERS_PER_TOKEN = 5


def estimate_tokens(text: str) -> int:
    """Return about how many tokens an embedder makes of a text."""
    return sum(-(-len(unit) // _LETTERS_PER_TOKEN) for unit in _UNIT.findall(text))


def split_document(text: str, title: str, config: ChunkingConfig) -> list[str]:
    """Return the passages of a document, in order.

    Each begins with the document's title and the headings it stands under, joined by " › ", where there are any.
    """
    passages = []
    for headings, body in _sections(text):
        header = " › ".join(dict.fromkeys(part for part in (title, *headings) if part))
        passages += [f"{header}\n{part}" if header else part for part in split_text(body, config)]
    # A document of headings alone still has words worth finding.
    return passages or split_text(text, config)


def split_text(text: str, config: ChunkingConfig) -> list[str]:
    """Return pieces of at most ``size_tokens``, cut between sentences where possible; each repeats the overlap."""
    pieces: list[str] = []
    current: list[str] = []
    sizes: list[int] = []
    for sentence in _sentences(text, config.size_tokens):
        size = estimate_tokens(sentence)
        if current and sum(sizes) + size > config.size_tokens:
            pieces.append("".join(current).strip())
            current, sizes = _overlap(current, sizes, min(config.overlap_tokens, config.size_tokens - size))
        current.append(sentence)
        sizes.append(size)
    pieces.append("".join(current).strip())
    return [piece for piece in pieces if piece]


def halve(passage: str) -> list[str]:
    """Return a passage in two, cut at the blank or mark nearest to its middle; one of a single character stays."""
    middle = len(passage) // 2
    if middle == 0:
        return [passage]
    borders = [match.end() for match in re.finditer(r"[\s。，,.;；]", passage) if 0 < match.end() < len(passage)]
    near = min(borders, key=lambda border: abs(border - middle), default=middle)
    cut = near if abs(near - middle) <= middle // 2 else middle
    return [part.strip() for part in (passage[:cut], passage[cut:]) if part.strip()]


def _overlap(sentences: list[str], sizes: list[int], limit: int) -> tuple[list[str], list[int]]:
    first, total = len(sentences), 0
    while first > 0 and total + sizes[first - 1] <= limit:
        first -= 1
        total += sizes[first]
    return sentences[first:], sizes[first:]


def _sentences(text: str, limit: int) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if sentence:
            yield from _words(sentence, limit) if estimate_tokens(sentence) > limit else (sentence,)


def _words(sentence: str, limit: int) -> Iterator[str]:
    """Cut a sentence longer than a passage between words, and a word longer than a passage anywhere."""
    start = size = 0
    for match in _WORD.finditer(sentence):
        width = estimate_tokens(match.group())
        if size and size + width > limit:
            yield sentence[start : match.start()]
            start, size = match.start(), 0
        size += width
    yield sentence[start:]


def _sections(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return (headings above, text) for each stretch between Markdown headings; fences hide what looks like one."""
    headings: dict[int, str] = {}
    lines: list[str] = []
    fenced = False
    for line in text.splitlines(keepends=True):
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.fullmatch(line.rstrip())
        if found is None:
            lines.append(line)
            continue
        yield tuple(headings.values()), "".join(lines)
        level = len(found[1])
        headings = {depth: name for depth, name in headings.items() if depth < level} | {level: found[2]}
        lines = []
    yield tuple(headings.values()), "".join(lines)
