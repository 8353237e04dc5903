"""The conditions of rules, each as cheap as a look at the request: no tokenizer runs and nothing is retrieved."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.config.routing import RuleConfig, When

#: Tokens that a chat template adds to each turn.
_TURN_TOKENS = 4
#: Characters of a Latin text, and of all others, that make a token.
_LATIN_CHARS, _OTHER_CHARS = 4.0, 1.2
#: What is looked at to tell a language: the beginning says it.
_LANGUAGE_CHARS = 1024
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What routing looks at. ``question`` is the last user message, ``texts`` are all turns.

    ``busy(model)`` is how much of what a model's engine works on at once is taken, None where that is not known.
    """

    request_id: str
    texts: Sequence[str] = ()
    question: str = ""
    json_asked: bool = False
    priority: str = "interactive"
    key_id: str | None = None
    user: str = ""
    session: str = ""
    busy: Callable[[str], float | None] = field(default=lambda model: None)


def matching(rules: Sequence[RuleConfig], asked: Asked, model: str) -> RuleConfig | None:
    """Return the first rule whose conditions all hold; ``model`` is the one whose business counts."""
    return next((rule for rule in rules if holds(rule.when, asked, model)), None)


def holds(when: When, asked: Asked, model: str) -> bool:
    """Tell whether all conditions hold; the dearer ones are looked at last."""
    return (
        when.json_asked in (None, asked.json_asked)
        and when.priority in (None, asked.priority)
        and (when.keys is None or asked.key_id in when.keys)
        and _busy(when, asked, model)
        and when.language in (None, language(asked.question) if when.language else None)
        and _length(when, asked)
    )


def _busy(when: When, asked: Asked, model: str) -> bool:
    if when.busy_above is None:
        return True
    taken = asked.busy(model)
    return taken is not None and taken > when.busy_above


def _length(when: When, asked: Asked) -> bool:
    below, above = when.prompt_tokens_below, when.prompt_tokens_above
    if below is None and above is None:
        return True
    tokens = estimated_tokens(asked.texts)
    return (below is None or tokens < below) and (above is None or tokens > above)


def estimated_tokens(texts: Sequence[str]) -> int:
    """Estimate the tokens of messages from the number of their characters: 4 MB of text take a few milliseconds.

    Within a quarter of what tokenizers count for English and Chinese prose; code and tables take more than estimated.
    """
    return sum(_TURN_TOKENS + _estimated(text) for text in texts)


def _estimated(text: str) -> int:
    if text.isascii():
        return round(len(text) / _LATIN_CHARS)
    ascii_chars = len(text.encode("ascii", "ignore"))
    return round(ascii_chars / _LATIN_CHARS + (len(text) - ascii_chars) / _OTHER_CHARS)


def language(text: str) -> Literal["en", "zh"] | None:
    """Return the language that a text's script stands for, or None for neither Latin nor Chinese script.

    A Chinese character counts as much as a Latin word, so that a Chinese question about `docker run` stays Chinese.
    """
    start = text[:_LANGUAGE_CHARS]
    han, words = len(_HAN.findall(start)), len(_LATIN_WORD.findall(start))
    if han > words and not _KANA.search(start):
        return "zh"
    return "en" if words and not han else ("en" if words > han else None)
