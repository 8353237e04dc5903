"""Builds each stage from the pipeline's shape, and the Serve class that runs one in a deployment of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from app.config.answers import AssemblerConfig, ModelWindow, PostprocessorConfig
from app.config.base import Config
from app.config.guardrail import GuardrailConfig
from app.config.observing import TracesConfig
from app.config.pipeline import PipelineShape, StageShape
from app.config.retrieval import RetrieverConfig
from app.deployments.known_errors import quieten
from app.deployments.live_settings import LiveSettings, lasting
from app.deployments.runner import GuardrailRunner, RetrieverRunner, StageRunner, settle
from app.handoff import HandoffMeter
from app.messages import RetrievalQuery, Retrieved
from app.metrics import Metrics, RayMetrics
from app.payloads import Payloads, PlacedRetrieved
from app.traces import OFF, Carrier, Traces

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


def build_runner(name: str, shape: PipelineShape, metrics: Metrics, traces: Traces = OFF) -> StageRunner:
    """Build the stage called ``name`` with its default settings, not yet started."""
    threads = stage_shape(shape, name).threads
    if name == "guardrail":
        from app.stages.guardrail import Guardrail

        return GuardrailRunner(Guardrail(GuardrailConfig()), threads)
    if name == "retriever":
        from app.stages.retriever import Retriever, RetrieverStructure

        structure = RetrieverStructure(store=shape.store, embedder=shape.embedder, chunking=shape.chunking)
        return RetrieverRunner(Retriever(structure, RetrieverConfig()), shape.stages.retriever, metrics, traces)
    if name == "assembler":
        from app.stages.assembler import Assembler

        seen = {"tokenizer", "context_tokens", "chat_template", "local_files_only", "image_tokens"}
        windows = {model: ModelWindow(**served.model_dump(include=seen)) for model, served in shape.models.items()}
        return StageRunner(Assembler(windows, AssemblerConfig()), threads)
    from app.stages.postprocessor import Postprocessor

    return StageRunner(Postprocessor(shape.embedder, PostprocessorConfig()), threads)


def open_payloads(shape: PipelineShape) -> Payloads | None:
    """Return this process's way through shared memory, or None where payloads go through Ray's object store."""
    return Payloads(shape.handoff) if shape.handoff.path == "arena" else None


def _split(settings: Any) -> tuple[Any, Any]:
    """Return a stage's own settings and those of the key ``traces``, which all deployments have."""
    own = dict(settings) if isinstance(settings, Mapping) else settings
    return own, own.pop("traces", {}) if isinstance(own, dict) else {}


def _lasting(name: str, settings: Any) -> Any:
    own, traces = _split(settings)
    return {**lasting(own), "traces": traces} if name == "guardrail" else settings


class StageDeployment:
    """One stage as a Serve deployment: starts it, hands it settings and requests, counts what it is handed."""

    async def __init__(self, name: str, shape: dict[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        quieten()
        self._name = name
        self._metrics = RayMetrics()
        self._live = LiveSettings(name, self._configure, self._metrics, partial(_lasting, name))
        self._meter = HandoffMeter(self._metrics)
        self._traces = Traces(name)
        parsed = PipelineShape.parse(shape, "pipeline")
        self._payloads = Payloads(parsed.handoff)
        self._runner = build_runner(name, parsed, self._metrics, self._traces)
        await self._runner.start()

    async def reconfigure(self, settings: Any) -> None:
        """Take new settings (Serve's ``user_config``); refused ones leave the old in force.

        Raises :class:`ConfigError`, which stops the replica, where there are no old ones.
        """
        if await self._live.reconfigure(settings):
            settle()

    async def _configure(self, settings: Any) -> None:
        """Hand the stage its own settings, and the traces theirs. Raises ConfigError."""
        own, found = _split(settings)
        traces = TracesConfig.parse(found, f"{self._name}.traces")
        await self._runner.configure(SETTINGS[self._name].parse(own, self._name))
        await asyncio.to_thread(self._traces.configure, traces)

    async def run(
        self,
        request: Any,
        payload: Retrieved | PlacedRetrieved | None = None,
        sent: float = 0.0,
        trace: Carrier | None = None,
    ) -> Any:
        """Run the stage on one request; ``payload`` arrives by reference, or as its place in shared memory.

        ``sent`` is the ``time.time()`` of the sending of the payload, ``trace`` the caller's span as W3C headers.
        """
        with self._traces.handled(self._name, trace, request) as span:
            result = await self._run(request, payload, sent)
            span.found(result)
        return result

    async def _run(self, request: Any, payload: Retrieved | PlacedRetrieved | None, sent: float) -> Any:
        if payload is None:
            return await self._runner.run(request)
        retrieved = self._payloads.open(payload) if isinstance(payload, PlacedRetrieved) else payload
        self._meter.record(f"retriever-{self._name}", retrieved, sent)
        result = await self._runner.run(request, retrieved)
        if isinstance(payload, PlacedRetrieved):
            self._payloads.check(payload)
        return result

    async def place(self, request: RetrievalQuery, trace: Carrier | None = None) -> PlacedRetrieved | None:
        """Run the retriever and leave its result in shared memory; None = there is no room, ask :meth:`run`."""
        with self._traces.handled(self._name, trace, request) as span:
            retrieved: Retrieved = await self._runner.run(request)
            span.found(retrieved)
            return await self._payloads.place(retrieved)

    async def manage(self, method: str, *arguments: Any, trace: Carrier | None = None) -> Any:
        """Call another method of the stage."""
        with self._traces.handled(self._name, trace, None) as span:
            span.set(code__function__name=method)
            return await self._runner.manage(method, *arguments)

    def __del__(self) -> None:
        """Send the last spans and remove the shared memory; Serve calls this when a replica stops."""
        self._traces.close()
        self._payloads.close()
