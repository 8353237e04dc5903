"""The ingress of an application: what every one of them has, and the two that Baton ships."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from fastapi import APIRouter, FastAPI
from ray import serve

from app.admission import Admission
from app.api.application import Surroundings
from app.api.applications.application import Application, build_application
from app.api.rpc.service import RpcService
from app.apps.guarding import Guard
from app.config.applications import IngressSettings, IngressShape
from app.config.base import Config
from app.config.deployment_options import ingress_room
from app.config.gateway import LimitsConfig
from app.config.guardrail import GuardrailConfig
from app.deployments.application_steps import RemoteStep, bind, bind_steps
from app.deployments.live_settings import ClusterKept, LiveSettings, lasting_settings
from app.deployments.rpc import ApplicationRpcs
from app.deployments.runner import GuardrailRunner, settle
from app.errors import ConfigError, StageUnavailable
from app.handles import LocalCall
from app.keys.ring import Keys
from app.metrics import Metrics, RayMetrics
from app.notes import note_request
from app.stages.guardrail import Guardrail
from app.traces import Traces

Live = TypeVar("Live", bound=IngressSettings)

_GUARDRAIL_THREADS = 2


class Ingress(ApplicationRpcs, ABC, Generic[Live]):
    """Serves one application's API, with keys, limits, guardrail and live settings as the gateway has them.

    A subclass names itself and its settings, and says what does the work and which routes lead there. ``handles`` are
    the deployments of its steps by name.
    """

    name: ClassVar[str]
    """The application, its ingress's deployment and its path."""
    live: ClassVar[type[IngressSettings]]
    """What its ``user_config`` is read with."""

    async def __init__(self, shape: dict[str, Any], handles: dict[str, Any]) -> None:  # type: ignore[misc]
        own = IngressShape.parse(shape, f"stages.{self.name}")
        self._metrics: Metrics = RayMetrics()
        self._traces = Traces(self.name)
        self._live = LiveSettings(self.name, self._take, self._metrics, lasting_settings)
        self._keys = Keys(self._metrics, ClusterKept("keys"))
        self._settings: Live | None = None
        self._runner = GuardrailRunner(Guardrail(GuardrailConfig()), _GUARDRAIL_THREADS)
        await self._runner.start()
        self._admission = Admission(self.name, own.max_ongoing_requests, own.max_queued_requests, self._metrics)
        self._steps = {name: RemoteStep(name, handle, self._metrics, self._traces) for name, handle in handles.items()}

    @abstractmethod
    def service(self, steps: Mapping[str, Any], guard: Guard) -> Any:
        """Return what the routes call; ``steps`` are steps of a composition (``app/apps/composition.py``)."""

    @abstractmethod
    def router(self) -> APIRouter:
        """Return the routes, with whole paths."""

    def settings(self) -> Live:
        """Return the settings in force."""
        if self._settings is None:
            raise StageUnavailable("The application has no settings yet; try again shortly.", self.name, None, 1)
        return self._settings

    async def __serve_build_asgi_app__(self) -> FastAPI:
        admission = Admission("guardrail", _GUARDRAIL_THREADS, -1, self._metrics)
        guard = Guard(LocalCall("guardrail", self._runner, admission), self._metrics, self._policy, self._traces)
        service = self.service(self._steps, guard)
        application = Application(self.name, service, self._limits, self._admission, self._metrics)
        around = Surroundings(partial(note_request, self._metrics), self._traces, self._keys)
        # Serve's gRPC proxy, unlike its HTTP proxy, leaves the reply's request id to us.
        inner = build_application(application, self.router(), around)
        self._rpc = RpcService(inner, lambda: self._limits().max_timeout_seconds)
        return build_application(application, self.router(), replace(around, behind_proxy=True))

    def _policy(self) -> str:
        return self.settings().policy

    def _limits(self) -> LimitsConfig:
        return self.settings().limits

    async def reconfigure(self, user_config: Any) -> None:
        """Take new settings; refused ones leave the old in force.

        Raises :class:`ConfigError`, which stops the replica, where there are no old ones.
        """
        if await self._live.reconfigure(user_config):
            settle()

    async def _take(self, user_config: Any) -> None:
        settings: Any = self.live.parse(user_config, f"applications.{self.name}.settings")
        keys = await self._keys.load(settings.auth)
        if settings.policy not in settings.guardrail.names():
            raise ConfigError(
                f"applications.{self.name}.settings.policy names {settings.policy!r}, which guardrail.policies lacks",
                self.name,
            )
        await self._runner.configure(settings.guardrail)
        await asyncio.to_thread(self._traces.configure, settings.traces)
        self._keys.use(keys)
        self._settings = settings

    def check_health(self) -> None:
        """Raise when the application cannot serve, so that Serve replaces the replica."""
        self.settings()

    def __del__(self) -> None:
        """Send the last spans; Serve calls this when a replica stops."""
        traces = getattr(self, "_traces", None)
        if traces is not None:
            traces.close()


def build_ingress(ingress: type[Ingress[Any]], stages: Config, steps: Mapping[str, Any] | None = None) -> Any:
    """Return an application: its ingress, handed the deployments of all other ``stages``.

    ``steps`` are those deployments, bound, where they are not Baton's own steps.
    """
    shapes = {name: getattr(stages, name) for name in type(stages).model_fields}
    own = shapes.pop(ingress.name)
    room = ingress_room(own.max_ongoing_requests, own.max_queued_requests)
    open_wide = own.model_copy(update={"max_ongoing_requests": room, "max_queued_requests": -1})
    app = serve.ingress()(ingress)
    handed = bind_steps(shapes) if steps is None else dict(steps)
    return bind(app, ingress.name, open_wide, own.model_dump(mode="json"), handed)
