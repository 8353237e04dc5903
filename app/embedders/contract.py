"""What an embedder is: texts in, one vector per text and, on request, one vector per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Kind = Literal["query", "passage"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The embeddings of ``n`` texts.

    ``vectors``: float32 ``(n, dimension)``, L2-normalised.
    ``tokens``: float32 ``(total_tokens, dimension)``, each row L2-normalised; rows ``offsets[i]:offsets[i+1]`` belong
    to text ``i``; special tokens and the model's own prefix ("query: ") are left out. Empty when not asked for.
    ``offsets``: int64 ``(n + 1,)``.
    ``truncated``: bool ``(n,)``, true where a text was longer than the embedder's window.
    """

    vectors: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    truncated: npt.NDArray[np.bool_]


class Embedder(Protocol):
    """A text encoder. ``encode`` is thread-safe and deterministic."""

    name: str
    dimension: int
    max_tokens: int

    def start(self) -> None:
        """Load the weights. Raises :class:`app.errors.ConfigError` naming the path when that cannot be done."""

    def encode(self, texts: Sequence[str], kind: Kind, tokens: bool = False) -> Encoded:
        """Embed texts; ``tokens`` asks for the token embeddings too."""
        ...

    def count_tokens(self, texts: Sequence[str], kind: Kind) -> list[int]:
        """Return how many tokens each text takes of the window, with special tokens and the model's own prefix.

        More than ``max_tokens`` means that :meth:`encode` would cut the text; of an endless one the number is a least.
        """
        ...

    def close(self) -> None:
        """Release the weights."""


@runtime_checkable
class ImageEmbedder(Embedder, Protocol):
    """An embedder that reads images too, into the space of its texts."""

    def encode_images(self, images: Sequence[bytes]) -> npt.NDArray[np.float32]:
        """Embed images (PNG, JPEG or WebP): float32 ``(n, dimension)``, L2-normalised.

        Raises :class:`app.errors.InvalidRequest` for one that is damaged.
        """
        ...
