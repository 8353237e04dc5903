"""Control tokens in text: made harmless by a zero-width space (U+200B) after their first character.

The text still reads the same to a person and nearly the same to the model, but no tokenizer takes it for a turn mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_BREAK = "\u200b"
# Turn marks of common model families: they are broken up even where the tokenizer in use does not know them, since a
# model may have learnt them as plain text.
_FAMILIES = (
    r"<\|[^\s<>|]{1,48}\|>",
    r"<\uff5c[^\s<>\uff5c]{1,48}\uff5c>",
    r"<(?:start|end)_of_(?:turn|utterance)>",
    r"<(?:bos|eos)>",
    r"</?tool_(?:call|response)s?>",
    r"<</?SYS>>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
)
_MAX_ROUNDS = 8
# Halves of surrogate pairs come in through JSON escapes; they are no Unicode text, and tokenizers raise on them.
_SURROGATES = re.compile(r"[\ud800-\udfff]")

#: Returns the (start, end) character spans that a tokenizer itself reads as control tokens.
Spans = Callable[[str], Sequence[tuple[int, int]]]


def is_control(content: str, special: bool) -> bool:
    """Tell whether an added token steers the model: special ones and bracketed ones do, runs of blanks do not."""
    if not content.strip():
        return False
    return special or (len(content) > 2 and content[0] in "<[" and content[-1] in ">]")


class Neutraliser:
    """Breaks up control tokens. ``tokens`` are those of the tokenizer in use.

    ``spans`` is given for tokenizers that look for control tokens in normalised text (full-width or upper-case forms
    count too): there only the tokenizer itself can say what it finds.
    """

    def __init__(self, tokens: Iterable[str], spans: Spans | None = None) -> None:
        literals = sorted((re.escape(token) for token in tokens), key=len, reverse=True)
        self._pattern = re.compile("|".join([*literals, *_FAMILIES]))
        self._spans = spans

    def finds(self, text: str) -> bool:
        """Tell whether ``text`` holds a control token."""
        return bool(self._pattern.search(text)) or bool(self._spans and self._spans(text))

    def clean(self, text: str) -> str:
        """Return ``text`` without anything that a tokenizer would read as a control token, or could not read at all."""
        text = _SURROGATES.sub("\ufffd", text)
        # A match may hide another one that overlaps it, hence rounds; each breaks at least one token for good.
        changes = 1
        while changes:
            text, changes = self._pattern.subn(_split_match, text)
        return self._clean_normalised(text) if self._spans else text

    def _clean_normalised(self, text: str) -> str:
        assert self._spans is not None
        for _ in range(_MAX_ROUNDS):
            spans = self._spans(text)
            if not spans:
                return text
            for start, end in reversed(spans):
                text = text[: start + 1] + _BREAK + text[start + 1 : end] + text[end:]
        for start, end in reversed(self._spans(text)):
            text = text[:start] + text[end:]
        return text


def _split_match(match: re.Match[str]) -> str:
    token = match.group()
    return token[0] + _BREAK + token[1:]
