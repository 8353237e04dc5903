"""Sentiment from a lexicon: VADER, for English, without a model or weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.answers.sentences import split_sentences
from app.apps.messages import Sentiment

_SENTENCES = 400
#: A "sentence" without an end costs VADER the square of its length.
_SENTENCE_CHARS = 1000


class Vader:
    """Reads a text sentence by sentence and takes the mean, as VADER's authors advise for more than a tweet."""

    def __init__(self) -> None:
        self._analyzer: Any = None

    def start(self) -> None:
        """Read the lexicon."""
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        self._analyzer = SentimentIntensityAnalyzer()

    def run(self, requests: Sequence[str]) -> list[Sentiment]:
        """Judge texts."""
        return [in_stars(self._compound(text)) for text in requests]

    def _compound(self, text: str) -> float:
        sentences = [found.text[:_SENTENCE_CHARS] for found in split_sentences(text, _SENTENCES)] or [text]
        return sum(float(self._analyzer.polarity_scores(part)["compound"]) for part in sentences) / len(sentences)


def in_stars(compound: float) -> Sentiment:
    """Return a value of -1 to 1 on the scale of 1 to 5 stars: shared between the two stars that it lies between.

    ``negative`` is the share of 1 and 2 stars together, as with a classifier of stars.
    """
    place = 3 + 2 * min(1.0, max(-1.0, compound))
    nearest = min(5, int(place + 0.5))
    label = f"{nearest} star" if nearest == 1 else f"{nearest} stars"
    return Sentiment(label, round(1 - abs(place - nearest), 4), round(min(1.0, max(0.0, 3 - place)), 4))
