"""Any Hugging Face encoder as an embedder: one vector per text, and one per token on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from app.config.embedder import EmbedderConfig, looks_like_a_path
from app.embedders import checkpoint
from app.embedders.checkpoint import Checkpoint
from app.embedders.contract import Encoded, Kind
from app.errors import StageUnavailable
from app.weights.sharing import Follower, Held

# Words of any language are far shorter than this many characters per token; what lies beyond is never tokenised, so a
# text of megabytes costs as much as one that fills the window.
_CHARS_PER_TOKEN = 32


class HuggingFaceEmbedder:
    """An :class:`app.embedders.contract.Embedder` on transformers and torch.

    ``dimension`` is 0 (or the configured one) and ``max_tokens`` the configured limit until ``start`` has read the
    model. Texts are tokenised one by one on an immutable tokenizer and run in batches of similar length, so results
    do not depend on batch mates and ``encode`` needs no lock.
    """

    def __init__(self, config: EmbedderConfig) -> None:
        self.name = PurePath(config.source).name if looks_like_a_path(config.source) else config.source
        self.dimension = config.dimension or 0
        self.max_tokens = config.max_tokens
        self._config = config
        self._loaded: Checkpoint | None = None
        self._follower: Follower | None = None

    def start(self) -> None:
        """Load weights and tokenizer. Raises :class:`app.errors.ConfigError` naming the source and what to change."""
        import torch

        torch.set_num_threads(self._config.threads)
        self._loaded = checkpoint.load(self._config)
        self.dimension = self._loaded.dimension
        self.max_tokens = self._loaded.window
        if self._loaded.held is not None:
            self._follower = Follower(self._loaded.held, self._adopt)
            self._follower.start()

    def _adopt(self, held: Held) -> None:
        """Run on other weights from the next call on; calls under way keep theirs."""
        loaded = self._loaded
        if loaded is not None:
            self._loaded = replace(loaded, model=held.module, held=held)

    def encode(self, texts: Sequence[str], kind: Kind, tokens: bool = False) -> Encoded:
        """Embed texts; a text over the window is cut at its end and flagged."""
        loaded = self._require()
        prefix = loaded.prefixes[kind]
        inputs = [_tokenise(loaded, prefix, text) for text in texts]
        vectors = np.zeros((len(inputs), loaded.dimension), np.float32)
        rows: list[npt.NDArray[np.float32]] = [np.empty((0, loaded.dimension), np.float32)] * len(inputs)
        for batch in _batches(inputs, self._config.batch_size):
            pooled, states = _forward(loaded, [inputs[index].ids for index in batch], tokens)
            vectors[batch] = pooled
            for place, index in enumerate(batch if tokens else ()):
                content = inputs[index].content
                rows[index] = states[place, : len(content)][content]
        counts = [len(found) for found in rows]
        return Encoded(
            vectors=vectors,
            tokens=np.concatenate(rows) if rows else np.empty((0, loaded.dimension), np.float32),
            offsets=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
            truncated=np.array([item.truncated for item in inputs], np.bool_),
        )

    def count_tokens(self, texts: Sequence[str], kind: Kind) -> list[int]:
        """Return how many tokens each text takes of the window."""
        loaded = self._require()
        return [_tokenise(loaded, loaded.prefixes[kind], text).whole for text in texts]

    def _require(self) -> Checkpoint:
        if self._loaded is None:
            raise StageUnavailable("The embedder is not started: call start() first.", "retriever")
        return self._loaded

    def close(self) -> None:
        """Release the weights."""
        if self._follower is not None:
            self._follower.close()
        self._loaded = None


class _Input:
    """One tokenised text: the ids, which of them are the text's own, whether it was cut, and its tokens uncut."""

    __slots__ = ("content", "ids", "truncated", "whole")

    def __init__(self, encoding: Any, prefix_chars: int, cut: bool, window: int) -> None:
        self.ids: list[int] = encoding.ids
        ends = np.array([end for _, end in encoding.offsets], np.int64)
        self.content = (np.array(encoding.special_tokens_mask) == 0) & (ends > prefix_chars)
        self.truncated = cut or bool(encoding.overflowing)
        counted = len(self.ids) + sum(part.special_tokens_mask.count(0) for part in encoding.overflowing)
        self.whole = max(counted, window + 1) if cut else counted


def _tokenise(loaded: Checkpoint, prefix: str, text: str) -> _Input:
    limit = loaded.window * _CHARS_PER_TOKEN
    # A lone surrogate, legal in JSON, is no Unicode text: the tokenizer would raise.
    clean = text[:limit].encode("utf-8", "replace").decode("utf-8")
    return _Input(loaded.tokenizer.encode(prefix + clean), len(prefix), len(text) > limit, loaded.window)


def _batches(inputs: Sequence[_Input], size: int) -> list[list[int]]:
    """Return the indices of ``inputs`` in groups of similar length, the longest first."""
    order = sorted(range(len(inputs)), key=lambda index: -len(inputs[index].ids))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _forward(loaded: Checkpoint, ids: Sequence[Sequence[int]], tokens: bool) -> tuple[Any, Any]:
    """Run one padded batch; return unit vectors float32 ``(n, d)`` and, if asked for, token states ``(n, t, d)``."""
    import torch
    from torch.nn.functional import normalize

    longest = max(len(row) for row in ids)
    padded = torch.full((len(ids), longest), loaded.pad_id, dtype=torch.long)
    mask = torch.zeros_like(padded)
    for place, row in enumerate(ids):
        padded[place, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[place, : len(row)] = 1
    padded, mask = padded.to(loaded.device), mask.to(loaded.device)
    with torch.inference_mode():
        found = loaded.model(input_ids=padded, attention_mask=mask)
        states = found.last_hidden_state.float()
        if loaded.pooling == "model":
            pooled = found.pooler_output.float()
        elif loaded.pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = mask.unsqueeze(-1)
            pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        vectors = normalize(pooled, dim=-1).cpu().numpy()
        return vectors, normalize(states, dim=-1).cpu().numpy() if tokens else None
