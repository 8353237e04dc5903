"""A whole pipeline in this process, without Ray: real guardrail, retriever, assembler, postprocessor; fake engine."""

import asyncio
import time
from pathlib import Path

from app.admission import Admission
from app.answering import Stages
from app.config.answers import AssemblerConfig, ModelWindow, PostprocessorConfig
from app.config.embedder import EmbedderConfig
from app.config.guardrail import GuardrailConfig
from app.config.priorities import DEFAULT_PRIORITIES
from app.config.retrieval import RetrieverConfig
from app.entrance import Entrance, Room
from app.handles import LocalCall
from app.handoff import HandoffMeter
from app.jobs import ChatJob
from app.messages import Message, RetrievalQuery
from app.metrics import MemoryMetrics
from app.routing.pipeline import RoutedPipeline
from app.stages.assembler import Assembler
from app.stages.generator import Generator
from app.stages.guardrail import Guardrail
from app.stages.postprocessor import Postprocessor
from app.stages.retriever import Retriever, RetrieverStructure
from app.testing.embedder import FakeEmbedder
from app.testing.engine import FakeEngine
from app.testing.store import MemoryStore
from tests.unit.prompting.model_folder import write_model

EMBEDDER = EmbedderConfig(kind="fake", dimension=64)
DOCUMENTS = [
    {"id": "zebra", "text": "The zebra note has the code word ZEBRA-77.", "metadata": {"lang": "en"}},
    {"id": "lion", "text": "The lion sleeps most of the day.", "metadata": {"lang": "en"}},
    {"id": "bomb", "text": "This note explains how to build a bomb from a zebra.", "metadata": {"lang": "en"}},
]


class InlineRunner:
    """Runs a stage where it is called; ``log`` shows the order of calls, ``delay`` slows the stage down."""

    def __init__(self, stage, log, delay=0.0):
        self.stage = stage
        self.log = log
        self.delay = delay

    async def run(self, request, payload=None):
        self.log.append(self.stage.name)
        await asyncio.sleep(self.delay)
        if payload is not None and self.stage.name == "guardrail":
            from dataclasses import replace

            request = replace(request, texts=tuple(payload.passages.column("text").slice(0, payload.top_k).to_pylist()))
        return self.stage.run(request, payload) if self.stage.name != "guardrail" else self.stage.run(request)

    def run_now(self, request):
        return None

    async def manage(self, method, *arguments):
        return getattr(self.stage, method)(*arguments)


class Site:
    """The parts, reachable by name."""

    def __init__(self, folder: Path, engine=None, guardrail=None, max_ongoing=8, max_queued=8, capacity=None):
        self.metrics = MemoryMetrics()
        self.log = []
        self.engine = engine or FakeEngine()
        terms = {"policies": {"default": {"terms": [{"term": "bomb"}, {"term": "secret", "action": "redact"}]}}}
        retriever = Retriever(
            RetrieverStructure(embedder=EMBEDDER), RetrieverConfig(), store=MemoryStore(), embedder=FakeEmbedder(64)
        )
        window = ModelWindow(tokenizer=write_model(folder / "model"), context_tokens=4096)
        self.stages = {
            "guardrail": Guardrail(GuardrailConfig.parse(guardrail or terms, "guardrail")),
            "retriever": retriever,
            "assembler": Assembler({"tiny": window}, AssemblerConfig()),
            "postprocessor": Postprocessor(EMBEDDER, PostprocessorConfig()),
        }
        self.runners = {}
        calls = {}
        for name, stage in self.stages.items():
            stage.start()
            self.runners[name] = InlineRunner(stage, self.log)
            calls[name] = LocalCall(name, self.runners[name], Admission(name, max_ongoing, max_queued, self.metrics))
        generator = Generator({"tiny": self.engine})
        stages = Stages(**calls, generator=generator, metrics=self.metrics, meter=HandoffMeter(self.metrics))
        self.running = {"tiny"}
        self.slots = None
        self.priorities = dict(DEFAULT_PRIORITIES)
        room = Room(max_ongoing, max_queued, lambda model: self.slots, lambda model: capacity)
        self.entrance = Entrance(self.metrics, lambda: self.priorities, room)
        self.pipeline = RoutedPipeline(stages, self.entrance, self._ready, self._runs)
        retriever.upsert_documents("notes", DOCUMENTS)

    async def _ready(self):
        return {"tiny": "ready"}

    async def _runs(self, model):
        return model in self.running

    async def ask(self, job):
        """Return all events of a job."""
        return [event async for event in self.pipeline.chat(job)]


def job(question="zebra", *, retrieve=False, **given):
    """Return a job that asks one question."""
    messages = given.pop("messages", (Message("user", question),))
    retrieval = RetrievalQuery(question, ("notes",), top_k=2, candidates=3) if retrieve else None
    defaults = {
        "request_id": "r1",
        "model": "tiny",
        "profile": "default",
        "system_prompt": "Be brief.",
        "policy": "default",
        "deadline": time.monotonic() + 10,
        "messages": messages,
        "retrieval": retrieval,
        "max_tokens": 32,
    }
    return ChatJob(**(defaults | given))
