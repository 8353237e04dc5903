"""The steps of the applications as Serve deployments, and the way to them from an ingress."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ray import serve

from app.apps.backends.build import build_backend
from app.config.applications import (
    DeploymentShape,
    EntitiesShape,
    PreprocessShape,
    SentimentShape,
    StepSettings,
    SummaryShape,
    TaskShape,
)
from app.deployments.known_errors import quieten
from app.deployments.runner import settle
from app.handles import RemoteCall
from app.metrics import Metrics, RayMetrics
from app.remote_engine import RemoteEngine
from app.stages.generator import Generator
from app.traces import OFF, Carrier, Traces

#: Step → the model that its shape is read with.
SHAPES: Mapping[str, type[DeploymentShape]] = {
    "preprocess": PreprocessShape,
    "sentiment": SentimentShape,
    "summary": SummaryShape,
    "entities": EntitiesShape,
}


class Step(ABC):
    """A step of an application, in a deployment of its own and named as that is: ``answer`` does the work."""

    def __init__(self) -> None:
        quieten()
        self.name = serve.get_replica_context().deployment
        self.traces = Traces(self.name)

    @abstractmethod
    async def answer(self, request: Any) -> Any:
        """Return the step's result. Raises errors of ``app.errors``."""

    async def run(self, request: Any, trace: Carrier | None = None) -> Any:
        """Run the step on one request; ``trace`` is the caller's span as W3C headers."""
        with self.traces.handled(self.name, trace, request):
            return await self.answer(request)

    async def reconfigure(self, settings: Any) -> None:
        """Take new settings (Serve's ``user_config``). Raises :class:`ConfigError`."""
        traces = StepSettings.parse(settings, f"{self.name}.settings").traces
        await asyncio.to_thread(self.traces.configure, traces)

    def __del__(self) -> None:
        """Send the last spans; Serve calls this when a replica stops."""
        traces = getattr(self, "traces", None)
        if traces is not None:
            traces.close()


class StepDeployment(Step):
    """A step of Baton's own: loads its backend, and batches requests that arrive together (Serve's own batching).

    On against off on two busy cores (``tests/bench/applications.py``): 1.12 times as many texts a second through the
    extractive summary, 0.85 through spaCy, 0.25 through the lexicon, for which batching is to be turned off.
    """

    async def __init__(self, name: str, shape: dict[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__()
        parsed = SHAPES[name].parse(shape, f"stages.{name}")
        self._metrics = RayMetrics()
        self._backend = build_backend(name, parsed, self._engine)
        self._answer = self._one
        if isinstance(parsed, TaskShape) and self._backend.batched and parsed.max_batch_size > 1:
            self._answer = serve.batch(
                max_batch_size=parsed.max_batch_size,
                batch_wait_timeout_s=parsed.batch_wait_seconds,
                max_concurrent_batches=parsed.threads,
            )(self._batch)
        await self._backend.start()
        settle()

    def _engine(self, application: str, model: str) -> Generator:
        def find() -> Any:
            return serve.get_deployment_handle("generator", application, _check_exists=False)

        return Generator({model: RemoteEngine("generator", find, self._metrics)})

    async def _batch(self, requests: list[Any], spans: list[Any]) -> list[Any]:
        with self.traces.batch(self.name, spans):
            return list(await self._backend.answer(requests))

    async def _one(self, request: Any, _span: Any) -> Any:
        return (await self._backend.answer([request]))[0]

    async def answer(self, request: Any) -> Any:
        """See :class:`Step`."""
        return await self._answer(request, self.traces.current())


class RemoteStep:
    """A step in a deployment of its own, as a step of a composition. Cancelling it cancels the call."""

    def __init__(self, stage: str, handle: Any, metrics: Metrics, traces: Traces = OFF) -> None:
        handle._init(_prefer_local_routing=True)
        self.stage = stage
        self._metrics = metrics
        self._call = RemoteCall(stage, handle, metrics, traces=traces)

    async def __call__(self, value: Any, deadline: float, /) -> Any:
        """Call the deployment. Raises errors of ``app.errors``."""
        began = time.monotonic()
        pending = self._call.submit(value)
        try:
            return await pending.result(deadline)
        finally:
            pending.cancel()
            self._metrics.add("baton_stage_milliseconds", (time.monotonic() - began) * 1000, stage=self.stage)


def bind_steps(stages: Mapping[str, DeploymentShape]) -> dict[str, Any]:
    """Return the deployments of an application's steps, bound: step → what becomes its handle."""
    return {name: bind(StepDeployment, name, shape, name, _plain(shape)) for name, shape in stages.items()}


def bind(cls: Callable[..., Any], name: str, shape: DeploymentShape, *arguments: Any) -> Any:
    """Return a deployment with the limits and options of ``shape``, bound to its arguments."""
    options = dict(shape.options)
    if not options.keys() & {"num_replicas", "autoscaling_config"}:
        options["num_replicas"] = shape.replicas
    limits = {"max_ongoing_requests": shape.max_ongoing_requests, "max_queued_requests": shape.max_queued_requests}
    return serve.deployment(cls).options(name=name, **{**limits, **options}).bind(*arguments)


def _plain(shape: DeploymentShape) -> dict[str, Any]:
    return shape.model_dump(mode="json")
