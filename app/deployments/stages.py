"""Builds each stage from the pipeline's shape, and the Serve class that runs one in a deployment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.config.answers import AssemblerConfig, ModelWindow, PostprocessorConfig
from app.config.base import Config
from app.config.guardrail import GuardrailConfig
from app.config.pipeline import PipelineShape, StageShape
from app.config.retrieval import RetrieverConfig
from app.config.version import config_version
from app.deployments.known_errors import quieten
from app.deployments.runner import GuardrailRunner, RetrieverRunner, StageRunner, refused, settle
from app.errors import ConfigError
from app.handoff import HandoffMeter
from app.messages import RetrievalQuery, Retrieved
from app.metrics import Metrics, RayMetrics
from app.payloads import Payloads, PlacedRetrieved

SETTINGS: Mapping[str, type[Config]] = {
    "guardrail": GuardrailConfig,
    "retriever": RetrieverConfig,
    "assembler": AssemblerConfig,
    "postprocessor": PostprocessorConfig,
}


def stage_shape(shape: PipelineShape, name: str) -> StageShape:
    """Return the shape of the stage called ``name``."""
    found: StageShape = getattr(shape.stages, name)
    return found


def build_runner(name: str, shape: PipelineShape, metrics: Metrics) -> StageRunner:
    """Build the stage called ``name`` with its default settings, not yet started."""
    threads = stage_shape(shape, name).threads
    if name == "guardrail":
        from app.stages.guardrail import Guardrail

        return GuardrailRunner(Guardrail(GuardrailConfig()), threads)
    if name == "retriever":
        from app.stages.retriever import Retriever, RetrieverStructure

        structure = RetrieverStructure(store=shape.store, embedder=shape.embedder, chunking=shape.chunking)
        return RetrieverRunner(Retriever(structure, RetrieverConfig()), shape.stages.retriever, metrics)
    if name == "assembler":
        from app.stages.assembler import Assembler

        seen = {"tokenizer", "context_tokens", "chat_template", "local_files_only"}
        windows = {model: ModelWindow(**served.model_dump(include=seen)) for model, served in shape.models.items()}
        return StageRunner(Assembler(windows, AssemblerConfig()), threads)
    from app.stages.postprocessor import Postprocessor

    return StageRunner(Postprocessor(shape.embedder, PostprocessorConfig()), threads)


def open_payloads(shape: PipelineShape) -> Payloads | None:
    """Return this process's way through shared memory, or None where payloads go through Ray's object store."""
    return Payloads(shape.handoff) if shape.handoff.path == "arena" else None


class StageDeployment:
    """One stage as a Serve deployment: starts it, hands it settings and requests, counts what it is handed."""

    async def __init__(self, name: str, shape: dict[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        quieten()
        self._name = name
        self._metrics = RayMetrics()
        self._meter = HandoffMeter(self._metrics)
        parsed = PipelineShape.parse(shape, "pipeline")
        self._payloads = Payloads(parsed.handoff)
        self._runner = build_runner(name, parsed, self._metrics)
        await self._runner.start()
        self._configured = False

    async def reconfigure(self, settings: Any) -> None:
        """Take new settings (Serve's ``user_config``).

        At start wrong settings stop the replica; later ones are refused, logged and counted, and the old ones stay.
        """
        try:
            await self._runner.configure(SETTINGS[self._name].parse(settings, self._name))
        except ConfigError as error:
            if not self._configured:
                raise
            refused(self._name, error, self._metrics)
        else:
            self._metrics.set("baton_config_version", config_version(settings), deployment=self._name)
        if not self._configured:
            settle()
        self._configured = True

    async def run(self, request: Any, payload: Retrieved | PlacedRetrieved | None = None, sent: float = 0.0) -> Any:
        """Run the stage on one request; ``payload`` arrives by reference, or as its place in shared memory.

        ``sent`` is the ``time.time()`` at which the caller sent the payload.
        """
        if payload is None:
            return await self._runner.run(request)
        retrieved = self._payloads.open(payload) if isinstance(payload, PlacedRetrieved) else payload
        self._meter.record(f"retriever-{self._name}", retrieved, sent)
        result = await self._runner.run(request, retrieved)
        if isinstance(payload, PlacedRetrieved):
            self._payloads.check(payload)
        return result

    async def place(self, request: RetrievalQuery) -> PlacedRetrieved | None:
        """Run the retriever and leave its result in shared memory; None = there is no room, ask :meth:`run`."""
        retrieved: Retrieved = await self._runner.run(request)
        return await self._payloads.place(retrieved)

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage."""
        return await self._runner.manage(method, *arguments)

    def __del__(self) -> None:
        """Remove the shared memory; Serve calls this when a replica stops."""
        self._payloads.close()
