"""What the steps of the applications hand to each other. Small, so all of it travels by value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreprocessRequest:
    """A text as it came in, and the tokens of it that are to be read."""

    text: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A text that is ready for models: normalised, and cut after ``tokens`` tokens.

    ``language`` is an ISO 639-1 code, ``und`` where there is nothing to tell it by.
    """

    text: str
    language: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Sentiment:
    """A verdict: the likeliest label and its share; ``negative`` is the share of all negative labels together."""

    label: str
    score: float
    negative: float


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A text to make short, and the bounds of the summary in tokens."""

    text: str
    min_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Entity:
    """A name in a text, what kind of thing it names, and how sure that is (0 to 1)."""

    text: str
    label: str
    score: float
