"""Serve's declarative configuration from Baton's: one application per model, one for the pipeline, others beside it.

The one place that decides what goes where (design decision 2): ``args`` carry what shapes deployments, ``user_config``
what may change live, and the overrides of a deployment what Serve changes in place, such as a number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.config.applications import (
    SHARED,
    AnalyzeApplication,
    ApplicationsConfig,
    ArticlesApplication,
    DeploymentShape,
    shape_args,
)
from app.config.observing import LogsConfig
from app.config.pipeline import PipelineSettings, PipelineShape

#: The pipeline's Serve application.
PIPELINE = "pipeline"

#: Deployments of the pipeline application, besides the gateway.
STAGES = ("guardrail", "retriever", "assembler", "postprocessor")


def logging_config(logs: LogsConfig) -> dict[str, Any]:
    """Return Serve's ``logging_config``, which reaches running processes in place; Baton logs each request itself."""
    return {"encoding": logs.encoding, "log_level": logs.level, "enable_access_log": False}


def grpc_options(port: int) -> dict[str, Any]:
    """Return Serve's ``grpc_options``; its proxies read them once, when they start.

    They listen on all addresses of their machine: Serve offers no choice.
    """
    return {"port": port, "grpc_servicer_functions": ["app.deployments.rpc_proxy:add_to_server"]}


@dataclass(frozen=True, slots=True)
class ModelApplication:
    """A model's Serve application: its engine as ``LLMConfig``, the environment and the deployment's options."""

    name: str
    engine: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def capacity(options: Mapping[str, Any]) -> int | None:
    """Return how many jobs a deployment with these options takes: at work and waiting; ``None`` where it may be any.

    The defaults are Serve's own: one replica, 5 ongoing requests, no bound on the queue.
    """
    queued = options.get("max_queued_requests", -1)
    if queued < 0:
        return None
    autoscaling = options.get("autoscaling_config") or {}
    replicas = autoscaling.get("max_replicas") or options.get("num_replicas") or 1
    return int(replicas * options.get("max_ongoing_requests", 5) + queued)


def applications(
    models: Sequence[ModelApplication],
    shape: PipelineShape,
    settings: PipelineSettings,
    runtime_env: Mapping[str, Any] | None = None,
    beside: ApplicationsConfig | None = None,
) -> list[dict[str, Any]]:
    """Return the applications: the models' first, then the pipeline's, then those ``beside`` it that are enabled.

    ``runtime_env`` is what all of them share.
    """
    common = dict(runtime_env or {})
    pipeline: dict[str, Any] = {
        "name": PIPELINE,
        "import_path": "app.main:build_pipeline",
        "route_prefix": "/",
        "args": _without_options(shape.model_dump(mode="json", by_alias=True)),
        "deployments": _deployments(models, shape, settings),
    }
    others = [_application(name, each, settings) for name, each in (beside.enabled() if beside else {}).items()]
    if common:
        for application in (pipeline, *others):
            application["runtime_env"] = common
    return [*(_model_application(model, common) for model in models), pipeline, *others]


def _application(
    name: str, application: AnalyzeApplication | ArticlesApplication, settings: PipelineSettings
) -> dict[str, Any]:
    live = settings.model_dump(mode="json", by_alias=True, include=set(SHARED))
    own = application.settings.model_dump(mode="json", by_alias=True)
    deployments = []
    for step in sorted(type(application.stages).model_fields):
        entry = {"name": step, **_rolled(replicated(getattr(application.stages, step)))}
        deployments.append(entry | {"user_config": live | own if step == name else {"traces": live["traces"]}})
    return {
        "name": name,
        "import_path": f"app.main:build_{name}",
        "route_prefix": f"/{name}",
        "args": shape_args(application.stages),
        "deployments": deployments,
    }


def replicated(shape: DeploymentShape) -> dict[str, Any]:
    """Return the options of an application's deployment, with its number of replicas where they say none."""
    if shape.options.keys() & {"num_replicas", "autoscaling_config"}:
        return shape.options
    return {"num_replicas": shape.replicas, **shape.options}


def _model_application(model: ModelApplication, common: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": model.name,
        "import_path": "app.main:build_model",
        "route_prefix": None,
        "args": dict(model.engine),
        "runtime_env": {**common, "env_vars": {**common.get("env_vars", {}), **model.env}},
        # Here, not in the engine: a change of num_replicas or of a limit then happens in place.
        "deployments": [{"name": "generator", **_patient(model.options)}],
    }


def _patient(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's options with time for the answers that a replica is writing when load takes it away.

    Serve's 20 s would cut off most long ones; without an end a single stream would keep a GPU for as long as it likes.
    """
    return {"graceful_shutdown_timeout_s": 90, **options} if options.get("autoscaling_config") else dict(options)


def _without_options(shape: dict[str, Any]) -> dict[str, Any]:
    """Drop the options of deployments: as overrides they change in place, as ``args`` they restart the application."""
    stages = {name: {**stage, "options": {}} for name, stage in shape["stages"].items()}
    return {**shape, "stages": stages}


def _deployments(
    models: Sequence[ModelApplication], shape: PipelineShape, settings: PipelineSettings
) -> list[dict[str, Any]]:
    live = settings.model_dump(mode="json", by_alias=True)
    options = {model.name: model.options for model in models}
    known = {name: capacity(options[model.application]) for name, model in shape.models.items()}
    found = {name: jobs for name, jobs in known.items() if jobs is not None}
    live["modelCapacity"] = found | live["modelCapacity"]
    deployments = [{"name": "gateway", "user_config": live, **_rolled(shape.stages.gateway.options)}]
    traces = {"traces": live["traces"]} if settings.traces.endpoint else {}
    for name in STAGES:
        stage = getattr(shape.stages, name)
        if stage.placement == "deployment":
            deployments.append({"name": name, "user_config": live[name] | traces, **_rolled(stage.options)})
    return deployments


def _rolled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's options with room for the new replicas of an update, which then costs no request.

    GPUs are seldom free: there a new replica would wait for ever for what the old one holds.
    """
    gpus = (options.get("ray_actor_options") or {}).get("num_gpus")
    return {**options} if gpus else {"max_surge_percent": 100, **options}
