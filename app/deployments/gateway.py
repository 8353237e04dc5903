"""The gateway: Baton's HTTP ingress, with the stages that are placed in its process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve

from app.admission import Admission
from app.answering import Stages
from app.api.application import build_api
from app.api.rpc.service import RpcService
from app.batch.store import check_folder
from app.batch.worker import BatchWorker
from app.config.batches import BatchesConfig
from app.config.gateway import GatewayConfig
from app.config.pipeline import PipelineSettings, PipelineShape
from app.config.serve import STAGES
from app.deployments.download_notes import noted
from app.deployments.live_settings import ClusterKept, LiveSettings, lasting_settings
from app.deployments.rpc import GatewayRpcs
from app.deployments.runner import settle
from app.deployments.stages import build_runner, open_payloads, stage_shape
from app.entrance import Entrance, Room
from app.errors import ConfigError, StageUnavailable
from app.failures import last_words
from app.handles import LocalCall, RemoteCall, RemoteRetriever, StageCall
from app.handoff import HandoffMeter
from app.keys.ring import Keys
from app.logs import logger
from app.metrics import Metrics, RayMetrics
from app.notes import note_request
from app.remote_engine import RemoteEngine
from app.routing.pipeline import RoutedPipeline
from app.stages.generator import Generator
from app.traces import Traces

_log = logger("gateway")
#: How long an answer to "is everything ready?" is reused: probes come every few seconds from several sides.
_READINESS_SECONDS = 1.0
#: How long Serve's controller may take to say: a probe that hangs tells nobody anything.
_READINESS_WAIT_SECONDS = 3.0
_SILENT = "Serve's controller does not answer"
_GENERATOR_DEPLOYMENT = "generator"
_READY = "ready"
_MAX_STATE_CHARS = 300
#: A model that falls asleep, sleeps or wakes has no replica that runs, and counts as ready: it wakes on demand. One
#: that starts for the first time is UPDATING, one that broke is UNHEALTHY.
_COMING_AND_GOING = frozenset({"HEALTHY", "UPSCALING", "DOWNSCALING"})


class Gateway(GatewayRpcs):
    """Serves the API, over HTTP and as RPCs. ``handles`` are the stages that have deployments of their own."""

    async def __init__(self, shape: dict[str, Any], handles: dict[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        self._shape = PipelineShape.parse(shape, "pipeline")
        self._metrics: Metrics = RayMetrics()
        self._live = LiveSettings("gateway", self._take, self._metrics, lasting_settings)
        self._keys = Keys(self._metrics, ClusterKept("keys"))
        self._batches = BatchWorker(self._metrics, self._keys)
        self._settings: GatewayConfig | None = None
        self._stage_settings: PipelineSettings | None = None
        self._payloads = open_payloads(self._shape)
        self._traces = Traces("gateway")
        here = [name for name in STAGES if name not in handles]
        self._runners = {name: build_runner(name, self._shape, self._metrics, self._traces) for name in here}
        for runner in self._runners.values():  # one by one: transformers cannot be imported by two threads at once
            await runner.start()
        engines = {
            name: RemoteEngine("generator", _finder(model.application), self._metrics)
            for name, model in self._shape.models.items()
        }
        self._readiness = Readiness(self._shape)
        stages, entrance = self._stages(handles, engines), self._entrance(engines)
        self._pipeline = RoutedPipeline(stages, entrance, self._readiness.probe, self._readiness.model_runs)

    def _entrance(self, engines: Mapping[str, RemoteEngine]) -> Entrance:
        own = self._shape.stages.gateway
        room = Room(
            max_ongoing=own.max_ongoing_requests,
            max_queued=own.max_queued_requests,
            engine_slots=lambda model: engines[model].slots(),
            capacity=lambda model: self._current_settings().model_capacity.get(model),
            gateways=_gateways,
            beyond=1,
        )
        return Entrance(self._metrics, lambda: self._current_settings().priorities, room)

    def _stages(self, handles: Mapping[str, Any], engines: Mapping[str, RemoteEngine]) -> Stages:
        calls = {name: self._call(name, handles) for name in STAGES}
        meter = HandoffMeter(self._metrics)
        return Stages(**calls, generator=Generator(engines), metrics=self._metrics, meter=meter, traces=self._traces)

    def _call(self, name: str, handles: Mapping[str, Any]) -> StageCall:
        if name in handles:
            remote = RemoteRetriever if name == "retriever" else RemoteCall
            # A replica on this node maps the payload; on another one it would have to be sent there.
            handles[name]._init(_prefer_local_routing=True)
            gone = partial(self._readiness.stage_gone, name)
            return remote(name, handles[name], self._metrics, self._payloads, self._traces, gone)
        shape = stage_shape(self._shape, name)
        admission = Admission(name, shape.max_ongoing_requests, shape.max_queued_requests, self._metrics)
        return LocalCall(name, self._runners[name], admission, self._traces)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        ways = (lambda: self._pipeline, self._current_settings, partial(note_request, self._metrics), self._traces)
        # Serve's gRPC proxy, unlike its HTTP proxy, leaves the reply's request id to us.
        inner = build_api(*ways, keys=self._keys)
        self._rpc = RpcService(inner, lambda: self._current_settings().limits.max_timeout_seconds)
        app = build_api(*ways, keys=self._keys, behind_proxy=True)
        self._batches.serve(app)
        return app

    def _current_settings(self) -> GatewayConfig:
        if self._settings is None:
            raise StageUnavailable("The gateway has no settings yet; try again shortly.", "gateway", None, 1)
        return self._settings

    async def reconfigure(self, user_config: Any) -> None:
        """Take new settings, checked as a whole before any stage sees its part; refused ones leave the old in force.

        Raises :class:`ConfigError`, which stops the replica, where there are no old ones.
        """
        if await self._live.reconfigure(user_config):
            settle()

    async def _take(self, user_config: Any) -> None:
        settings = PipelineSettings.parse(user_config, "settings")
        gateway = settings.gateway(self._shape)
        await self._check_folder(gateway.batches)
        keys = await self._keys.load(settings.auth)
        await self._configure_stages(settings)
        await asyncio.to_thread(self._traces.configure, settings.traces)
        self._keys.use(keys)
        self._settings = gateway
        self._batches.configure(gateway.batches)

    async def _check_folder(self, batches: BatchesConfig) -> None:
        """Refuse a folder in which nothing can be kept, but where one in force fails serve on without batches."""
        try:
            await asyncio.to_thread(check_folder, batches, make=True)
        except ConfigError as error:
            if self._settings is not None and self._settings.batches.folder != batches.folder:
                raise
            _log.error("gateway: batches are off: %s", error.message)

    async def _configure_stages(self, settings: PipelineSettings) -> None:
        """Configure all stages of this process or, when one refuses, none."""
        changed: list[str] = []
        try:
            for name, runner in self._runners.items():
                await runner.configure(getattr(settings, name))
                changed.append(name)
        except ConfigError:
            if self._stage_settings is not None:
                for name in changed:
                    await self._runners[name].configure(getattr(self._stage_settings, name))
            raise
        self._stage_settings = settings

    def check_health(self) -> None:
        """Raise when the gateway cannot serve, so that Serve replaces the replica."""
        self._current_settings()

    def __del__(self) -> None:
        """Send the last spans; Serve calls this when a replica stops."""
        traces = getattr(self, "_traces", None)
        if traces is not None:
            traces.close()


def _gateways() -> int:
    """Return the number of the gateway's replicas, as configured: where they scale by load, the number at the start."""
    return max(1, serve.get_replica_context().world_size or 1)


def _finder(application: str) -> Callable[[], Any]:
    def find() -> Any:
        return serve.get_deployment_handle(_GENERATOR_DEPLOYMENT, application, _check_exists=False)

    return find


class Readiness:
    """Asks Serve's controller whether each stage and model serves; answers are reused for a second."""

    def __init__(self, shape: PipelineShape) -> None:
        self._models = {name: model.application for name, model in shape.models.items()}
        self._answer: dict[str, str] = {}
        self._asked = 0.0
        self._lock = asyncio.Lock()

    async def probe(self) -> dict[str, str]:
        """Return stage or model name → ``"ready"`` or a sentence that says what is missing."""
        async with self._lock:
            if time.monotonic() - self._asked > _READINESS_SECONDS:
                try:
                    self._answer = await asyncio.wait_for(asyncio.to_thread(self._ask), _READINESS_WAIT_SECONDS)
                except TimeoutError:
                    self._answer = {"gateway": _SILENT}
                self._asked = time.monotonic()
            return dict(self._answer)

    async def stage_gone(self, stage: str) -> bool:
        """Tell whether the stage's deployment was removed; where Serve's controller does not say, that it was not."""
        found = await self.probe()
        # While an application is built anew Serve lists none of its deployments, and the gateway's is one of them.
        return found.get("gateway", _SILENT) != _SILENT and stage not in found

    async def model_runs(self, model: str) -> bool:
        """Tell whether the model has a replica at present; where Serve's controller does not say, that it has."""
        try:
            deployment = await asyncio.wait_for(asyncio.to_thread(self._engine, model), _READINESS_WAIT_SECONDS)
        except TimeoutError:
            return True
        return deployment is not None and deployment.replica_states.get("RUNNING", 0) > 0

    def _engine(self, model: str) -> Any:
        return _engine(serve.status().applications, self._models[model])

    def _ask(self) -> dict[str, str]:
        applications = serve.status().applications
        answer = {}
        own = next((found for found in applications.values() if "gateway" in found.deployments), None)
        for name, deployment in (own.deployments if own else {}).items():
            answer[name] = _state(name, deployment)
        for model, application in self._models.items():
            deployment = _engine(applications, application)
            if deployment is None:
                answer[model] = f"the application {application} of model {model} is not deployed"
            else:
                answer[model] = _state(model, deployment)
                if answer[model] != _READY and (progress := noted(application)):
                    answer[model] = f"{model} is downloaded: {progress}"[:_MAX_STATE_CHARS]
        return answer


def _engine(applications: Mapping[str, Any], name: str) -> Any:
    found = applications.get(name)
    return found.deployments.get(_GENERATOR_DEPLOYMENT) if found else None


def _state(name: str, deployment: Any) -> str:
    status = getattr(deployment.status, "value", deployment.status)
    if status in _COMING_AND_GOING or deployment.replica_states.get("RUNNING", 0) > 0:
        return _READY
    detail = f": {last_words(deployment.message)}" if deployment.message else ""
    return f"{name} is {status}{detail}"[:_MAX_STATE_CHARS]
