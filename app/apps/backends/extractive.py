"""A summary of a text's own sentences: those nearest to the centre of it all, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from app.answers.sentences import split_sentences
from app.apps.messages import SummaryRequest
from app.apps.wording import first_words
from app.config.backends import SummaryBackend
from app.config.embedder import EmbedderConfig
from app.embedders.contract import Embedder
from app.embedders.factory import build_embedder

_SENTENCES = 200


class Extractive:
    """Embeds the sentences and takes the most central ones that fit, whatever the encoder's language."""

    def __init__(self, config: SummaryBackend, threads: int) -> None:
        self._embedder: Embedder = build_embedder(
            EmbedderConfig(
                source=config.source,
                device=config.device,
                threads=threads,
                local_files_only=config.local_files_only,
                shared_weights=config.shared_weights,
            )
        )

    def start(self) -> None:
        """Load the encoder."""
        self._embedder.start()

    def run(self, requests: Sequence[SummaryRequest]) -> list[str]:
        """Summarise texts: all their sentences go through the encoder in one call."""
        texts = [[found.text for found in split_sentences(each.text, _SENTENCES)] for each in requests]
        flat = [sentence for sentences in texts for sentence in sentences]
        if not flat:
            return [request.text for request in requests]
        vectors = self._embedder.encode(flat, "passage").vectors
        empty, *counts = self._embedder.count_tokens(["", *flat], "passage")
        summaries, start = [], 0
        for request, sentences in zip(requests, texts, strict=True):
            end = start + len(sentences)
            own = vectors[start:end]
            scores = (own @ own.mean(axis=0)).tolist() if sentences else []
            summaries.append(self._picked(request, sentences, scores, [c - empty for c in counts[start:end]]))
            start = end
        return summaries

    def _picked(self, request: SummaryRequest, sentences: list[str], scores: list[float], tokens: list[int]) -> str:
        left, picked = request.max_tokens, []
        for place in sorted(range(len(sentences)), key=lambda at: -scores[at]):
            if tokens[place] <= left:
                picked.append(place)
                left -= tokens[place]
        if not sentences:
            return request.text
        if request.max_tokens - left >= min(request.min_tokens, sum(tokens)):
            return " ".join(sentences[place] for place in sorted(picked))
        # One sentence is longer than a summary may be: its beginning has to do.
        longest = max(range(len(sentences)), key=tokens.__getitem__)
        return self._cut(sentences[longest], request.max_tokens)

    def _cut(self, sentence: str, limit: int) -> str:
        """Return as many whole words as fit; a word of an encoder's vocabulary is seldom more than four tokens."""
        (empty,) = self._embedder.count_tokens([""], "passage")
        for words in range(limit, 0, -max(1, limit // 16)):
            part = first_words(sentence, words)
            if self._embedder.count_tokens([part], "passage")[0] - empty <= limit:
                return part
        return first_words(sentence, 1)[:limit]
