"""A shipped fake encoder: hashed bags of words, so texts that share words lie near each other. Needs no model."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from app.embedders.contract import Encoded, Kind

_DEFAULT_DIMENSION = 1024
_DEFAULT_MAX_TOKENS = 512
# No text of the fake's window is longer than this many characters a token; the rest is never looked at.
_CHARS_PER_TOKEN = 64
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class FakeEmbedder:
    """An :class:`app.embedders.contract.Embedder` without weights.

    Each word (each character of Chinese and Japanese) has a fixed random direction; a text is the sum of its words.
    The default size is that of the encoders used on GPUs, so that benches move realistic payloads.
    """

    def __init__(
        self, dimension: int = _DEFAULT_DIMENSION, *, max_tokens: int = _DEFAULT_MAX_TOKENS, name: str = "fake"
    ) -> None:
        self.name = name
        self.dimension = dimension
        self.max_tokens = max_tokens

    def start(self) -> None:
        """Load nothing: the fake is ready at once."""

    def encode(self, texts: Sequence[str], kind: Kind, tokens: bool = False) -> Encoded:
        """Embed texts. ``kind`` makes no difference; a text without words gets one fixed direction and no tokens."""
        words = [self._words(text) for text in texts]
        kept = [found[: self.max_tokens] for found in words]
        rows = [self._rows(found) for found in kept]
        return Encoded(
            vectors=self._vectors(rows),
            tokens=np.concatenate(rows) if tokens and rows else np.empty((0, self.dimension), np.float32),
            offsets=_offsets([len(found) for found in kept] if tokens else [0] * len(kept)),
            truncated=np.array([len(found) > self.max_tokens for found in words], np.bool_),
        )

    def count_tokens(self, texts: Sequence[str], kind: Kind) -> list[int]:
        """Return the words of each text; of a text over the window the least number that is over it."""
        return [len(self._words(text)) for text in texts]

    def close(self) -> None:
        """Release nothing."""

    def _words(self, text: str) -> list[str]:
        """Return at most one word more than the window holds."""
        bounded = text[: (self.max_tokens + 1) * _CHARS_PER_TOKEN]
        folded = unicodedata.normalize("NFKC", bounded).casefold()
        return [match.group() for match in islice(_WORD.finditer(folded), self.max_tokens + 1)]

    def _rows(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = np.empty((len(words), self.dimension), np.float32)
        for row, word in zip(rows, words, strict=True):
            row[:] = _direction(word, self.dimension)
        return rows

    def _vectors(self, rows: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        vectors = np.empty((len(rows), self.dimension), np.float32)
        for vector, text_rows in zip(vectors, rows, strict=True):
            total = text_rows.sum(axis=0) if len(text_rows) else _direction("", self.dimension)
            vector[:] = total / np.linalg.norm(total)
        return vectors


@lru_cache(maxsize=8192)
def _direction(word: str, dimension: int) -> npt.NDArray[np.float32]:
    """Return the unit vector of a word: the same in every process, nearly orthogonal to every other word's."""
    seed = int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    vector = np.random.default_rng(seed).standard_normal(dimension, np.float32)
    vector /= np.linalg.norm(vector)
    vector.setflags(write=False)
    return vector


def _offsets(counts: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)
