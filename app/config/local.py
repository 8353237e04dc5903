"""The configuration of ``make run``: the whole pipeline on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.config.applications import ApplicationsConfig, check_applications
from app.config.base import Config
from app.config.deployment_options import Options
from app.config.engine import Engine
from app.config.pipeline import PipelineSettings, PipelineShape
from app.config.profile import CollectionName, Count, Name
from app.config.serve import PIPELINE, ModelApplication, applications, grpc_options, logging_config
from app.config.yaml_file import read_yaml

#: The folder that holds ``app``, ``config`` and ``samples``.
ROOT = Path(__file__).resolve().parents[2]

Port = Annotated[int, Field(ge=1, le=65535)]


class MachineConfig(Config):
    """What the local cluster takes of this machine."""

    host: str = "127.0.0.1"
    """Address that the gateway listens on."""
    port: Port = 8000
    """Port of the gateway."""
    grpc_port: Port | None = None
    """Port of the gateway's gRPC, on all addresses of this machine; unset: no gRPC."""
    metrics_port: Port = 9464
    """Port of the page that Prometheus scrapes."""
    dashboard_port: Port = 8265
    """Port of Ray's dashboard, which also takes the Serve configuration."""
    logical_cpus: Count = 8
    """CPUs that Ray hands out. More than the machine has is right here: stages wait more than they compute."""
    object_store_bytes: Count = 512 * 1024 * 1024
    """Shared memory for the hand-off."""
    min_memory_bytes: Count = 7 * 1024**3
    """Memory that must be available at start."""
    min_disk_bytes: Count = 2 * 1024**3
    """Disk space that must be free for models and index."""
    start_timeout_seconds: Count = 900
    """How long the applications may take to start."""


class LocalModel(Config):
    """A model application of the local cluster."""

    application: Name
    """Name of the Serve application."""
    engine: Engine
    """``LLMConfig`` of ``ray.serve.llm``, verbatim."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the engine's processes."""
    options: Options = Field(default_factory=dict)
    """Options of the deployment ``generator`` under Ray's own names. Here, not in ``engine``: a change of
    ``num_replicas`` or of a limit then happens in place, and the engine is not restarted."""


class LocalConfig(Config):
    """Everything that ``python -m app.ops.run`` starts."""

    machine: MachineConfig = MachineConfig()
    """Ports and sizes."""
    models: list[LocalModel] = Field(min_length=1)
    """Model applications."""
    pipeline: PipelineShape
    """Shape of the pipeline application."""
    settings: PipelineSettings
    """What may change while it serves."""
    applications: ApplicationsConfig = ApplicationsConfig()
    """Applications beside the pipeline."""
    collections: dict[CollectionName, str] = Field(default_factory=dict)
    """Collections to index at start: name → folder or file."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        self._check_names()
        known = {model.application for model in self.models}
        for name, model in self.pipeline.models.items():
            if model.application not in known:
                raise ValueError(f"pipeline.models.{name}.application names {model.application!r}, not among models")
        self.settings.gateway(self.pipeline)
        check_applications(self.applications, self.settings, known)
        return self

    def _check_names(self) -> None:
        taken = {PIPELINE: "the pipeline"} | {
            name: f"applications.{name}" for name in type(self.applications).model_fields
        }
        for place, model in enumerate(self.models):
            if model.application in taken:
                other = taken[model.application]
                raise ValueError(
                    f"models.{place}.application is {model.application!r}, the name of {other}: choose another one"
                )
            taken[model.application] = f"models.{place}"


def load(path: Path, data: Path) -> LocalConfig:
    """Read a YAML file. Raises ConfigError.

    In its strings ``{data}`` stands for the folder of models and index, ``{root}`` for the one that holds ``app``.
    """
    return LocalConfig.parse(read_yaml(path, {"data": str(data), "root": str(ROOT)}), f"{path}:")


def serve_config(config: LocalConfig) -> dict[str, Any]:
    """Return Serve's declarative configuration for this machine."""
    models = [ModelApplication(model.application, model.engine, model.env, model.options) for model in config.models]
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": config.machine.host, "port": config.machine.port},
        "logging_config": logging_config(config.settings.logs),
        "applications": applications(models, config.pipeline, config.settings.in_order(), beside=config.applications),
        **({"grpc_options": grpc_options(config.machine.grpc_port)} if config.machine.grpc_port else {}),
    }
