"""The product's batching of questions, driven from inside a Serve replica so that no hop is in the figures."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray import serve

from app.config.embedder import EmbedderConfig
from app.config.pipeline import BatchingShape
from app.config.retrieval import RetrieverConfig
from app.deployments.runner import RetrieverRunner
from app.embedders.factory import build_embedder
from app.messages import RetrievalQuery
from app.metrics import MemoryMetrics
from app.stages.retriever import Retriever, RetrieverStructure
from app.testing.store import MemoryStore
from tests.bench.measure import ROOT

IN_FLIGHT = 32
MODEL = ROOT / ".baton" / "models" / "e5-small"
#: Groups of the embedder alone: how many questions, and whether those of like length come together.
GROUPS = ((1, False), (16, False), (16, True))
#: Questions per second of each group, one value a round.
Groups = dict[tuple[int, bool], list[float]]
#: Tokens that the model puts around each question: the two specials and its prefix "query: ".
_FRAME_TOKENS = 4


@dataclass
class Driven:
    """What one setting did: questions per second and CPU seconds per question by round, all latencies, all batches."""

    throughput: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


def questions() -> list[str]:
    """Return the sample questions, English and Chinese, in an order that mixes them."""
    files = sorted((ROOT / "samples" / "questions").glob("*.jsonl"))
    found = [json.loads(line)["question"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    random.Random(7).shuffle(found)
    return found


class CountedRetriever(Retriever):
    """Notes how many questions came together."""

    batches: list[int]

    def run_batch(self, requests: Sequence[RetrievalQuery]) -> list[Any]:
        self.batches.append(len(requests))
        return super().run_batch(requests)


@serve.deployment(max_ongoing_requests=128, ray_actor_options={"num_cpus": 0})
class EmbedderBench:
    """Holds one embedder, and a :class:`RetrieverRunner` for each setting that is compared."""

    def __init__(self) -> None:
        structure = RetrieverStructure(embedder=EmbedderConfig(source=str(MODEL)))
        self._embedder = build_embedder(structure.embedder)
        self._stage = CountedRetriever(structure, RetrieverConfig(), store=MemoryStore(), embedder=self._embedder)
        self._stage.batches = []
        self._stage.start()
        self._questions = questions()

    async def drive(self, settings: Mapping[str, Mapping[str, Any]], rounds: int, asked: int) -> dict[str, Driven]:
        """Ask ``asked`` questions a round under each setting, in an order drawn anew each round."""
        runners = {
            name: RetrieverRunner(self._stage, BatchingShape(placement="deployment", **shape), MemoryMetrics())
            for name, shape in settings.items()
        }
        found = {name: Driven() for name in settings}
        order, drawn = list(settings), random.Random(7)
        await self._round(runners[order[-1]], IN_FLIGHT, Driven())
        for _ in range(rounds):
            drawn.shuffle(order)
            for name in order:
                await self._round(runners[name], asked, found[name])
        return found

    async def _round(self, runner: RetrieverRunner, asked: int, into: Driven) -> None:
        """Keep 32 questions in flight until all are answered. Without a collection, a question is embedded only."""
        waiting = iter([self._questions[index % len(self._questions)] for index in range(asked)])
        self._stage.batches = into.batches

        async def client() -> None:
            for text in waiting:
                start = time.perf_counter()
                await runner.run(RetrievalQuery(text, (), 4, 24))
                into.latencies.append(time.perf_counter() - start)

        start, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*[client() for _ in range(IN_FLIGHT)])
        into.throughput.append(asked / (time.perf_counter() - start))
        into.cpu.append((time.process_time() - used) / asked)

    async def encode(self, rounds: int) -> Groups:
        """Return questions per second of the embedder alone, in one thread, by size of the groups and by order.

        In order of length hardly any padding is left: that is the most which sorting or packing could give.
        """
        ordered = sorted(zip(self.lengths(), self._questions, strict=True))
        texts = {False: self._questions, True: [text for _, text in ordered]}
        found: Groups = {key: [] for key in GROUPS}
        for _ in range(rounds):
            for size, by_length in found:
                start = time.perf_counter()
                for first in range(0, len(self._questions), size):
                    await asyncio.to_thread(self._stage.embed_queries, texts[by_length][first : first + size])
                found[size, by_length].append(len(self._questions) / (time.perf_counter() - start))
        return found

    def lengths(self) -> list[int]:
        """Return the tokens of each question, in the order in which they are asked."""
        offsets = self._embedder.encode(self._questions, "query", tokens=True).offsets
        return [int(count) + _FRAME_TOKENS for count in offsets[1:] - offsets[:-1]]
