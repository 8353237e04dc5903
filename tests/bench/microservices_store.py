"""A store that costs next to nothing, so that the way between the stages shows; for both sides alike.

LanceDB takes about 40 ms to read the stored token embeddings of 64 passages. The collection ``hot`` holds the same
passages in the retriever's memory, as a vector database does that has all of them cached: it ranks by one matrix
product, and what it returns is made into the same table by the same code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from ray.serve import Application

import app.deployments.stages
import app.stores.build
from app.config.retrieval import StoreConfig
from app.deployments.stages import StageDeployment
from app.stores.contract import Matrix, Ranked, Snapshot, StoredPassage
from app.stores.lancedb import LanceStore
from app.stores.payload import encode_tokens
from app.testing.embedder import FakeEmbedder

HOT = "hot"
PASSAGES, WORDS, DIMENSION = 256, 64, 1024
_VOCABULARY, _SENTENCE_WORDS = 600, 16


def vocabulary() -> list[str]:
    """Return words of five letters, the same each time: one token each, for the fake embedder and when cut."""
    drawn = random.Random(7)
    return ["".join(drawn.choices("abcdefghijklmnoprstuvw", k=5)) for _ in range(_VOCABULARY)]


def documents() -> Iterator[dict[str, str]]:
    """Yield the documents that are searched, of one passage each."""
    drawn = random.Random(13)
    for number in range(PASSAGES):
        words = drawn.choices(vocabulary(), k=WORDS)
        parts = [" ".join(words[at : at + _SENTENCE_WORDS]) for at in range(0, WORDS, _SENTENCE_WORDS)]
        yield {"id": f"d{number}", "text": ". ".join(parts) + ".", "source": f"source-{number}"}


class _HotSnapshot:
    """All passages in memory, stored as every store has them."""

    def __init__(self) -> None:
        self.dimension = DIMENSION
        found = list(documents())
        self._ids = [document["id"] for document in found]
        encoded = FakeEmbedder(DIMENSION).encode([document["text"] for document in found], "passage", tokens=True)
        self._vectors = encoded.vectors
        self._passages = {}
        for place, document in enumerate(found):
            tokens = encode_tokens(encoded.tokens[encoded.offsets[place] : encoded.offsets[place + 1]])
            self._passages[document["id"]] = StoredPassage(
                document["id"], document["text"], document["source"], "{}", tokens
            )

    def nearest(self, vector: Matrix, limit: int, where: Any) -> Ranked:
        """Rank by one matrix product."""
        best = np.argsort(-(self._vectors @ vector))[:limit]
        return Ranked([self._ids[place] for place in best], self._vectors[best])

    def matching(self, terms: Sequence[str], limit: int, where: Any) -> Ranked:
        """Find nothing: the profile asks for vectors only."""
        return Ranked([], np.empty((0, DIMENSION), np.float32))

    def fetch(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return passages by id."""
        return [self._passages[key] for key in ids]


class HotStore(LanceStore):
    """LanceDB, and the collection ``hot``."""

    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config)
        self._hot = _HotSnapshot()

    @contextmanager
    def snapshot(self, name: str) -> Iterator[Snapshot]:
        """Open a view of a collection."""
        if name == HOT:
            yield self._hot
            return
        with super().snapshot(name) as found:
            yield found


def install() -> None:
    """Let retrievers of this process open the hot store. The product has no configuration for it, and needs none."""
    app.stores.build.build_store = HotStore


class HotStageDeployment(StageDeployment):
    """Baton's stage deployment in a process that knows the hot store."""

    async def __init__(self, name: str, shape: dict[str, Any]) -> None:
        install()
        await super().__init__(name, shape)


def build_pipeline(args: dict[str, Any]) -> Application:
    """Build Baton's pipeline with the hot store in reach. Import path for Serve."""
    from app.main import build_pipeline as build

    app.deployments.stages.StageDeployment = HotStageDeployment
    return build(args)
