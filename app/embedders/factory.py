"""From a configuration to an embedder."""

from __future__ import annotations

from app.config.embedder import EmbedderConfig
from app.embedders.contract import Embedder
from app.embedders.huggingface import HuggingFaceEmbedder
from app.testing.embedder import FakeEmbedder


def build_embedder(config: EmbedderConfig) -> Embedder:
    """Return the embedder that ``config`` describes, not yet started."""
    if config.kind == "fake":
        if config.dimension is None:
            return FakeEmbedder(max_tokens=config.max_tokens)
        return FakeEmbedder(config.dimension, max_tokens=config.max_tokens)
    if config.kind == "clip":
        from app.embedders.clip import ClipEmbedder

        return ClipEmbedder(config)
    return HuggingFaceEmbedder(config)
