"""The own engine loop in the chart: its values, and the Serve application that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.config.chart.kinds import EnvName, EnvValue
from app.config.deployment_options import Options
from app.config.engine_loop import EngineLoopSettings, EngineLoopShape, LoopOwnSettings
from app.config.pipeline import PipelineSettings

APPLICATION = "engine-loop"
#: What the application takes of the pipeline's settings.
SHARED = {"limits", "guardrail", "auth", "traces"}


class EngineLoopValues(Config):
    """An application that drives vLLM's engine itself (docs/engine-loop.md)."""

    enabled: bool = False
    """Whether it runs beside the pipeline, with an engine of its own."""
    route_prefix: Annotated[str, Field(pattern=r"^(/[a-z0-9-]+)+$")] = "/engine-loop"
    """Path that it answers under."""
    shape: EngineLoopShape | None = None
    """Model, engine, bounds, response cache, prompts as tensors: a change restarts this application."""
    settings: LoopOwnSettings = LoopOwnSettings()
    """System prompt, sampling and policy: changes in place. Limits, guardrail, keys and traces: those of `settings`."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment of its processes: a change restarts it."""
    options: Options = Field(default_factory=dict)
    """Options of the deployment `engine_loop` under Ray's own names, such as `ray_actor_options: {num_gpus: 1}`."""

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if self.enabled and self.shape is None:
            raise ValueError("enabled needs shape, with model and source")
        return self


def engine_loop_applications(
    values: EngineLoopValues, settings: PipelineSettings, runtime_env: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the application for Serve's configuration; none where it is off. Raises ConfigError.

    What the whole installation has in common (:data:`SHARED`) comes from the pipeline's settings, so no request goes
    round it here.
    """
    if not values.enabled or values.shape is None:
        return []
    shape = values.shape.model_dump(mode="json", by_alias=True)
    splicer = shape["embeddings"].pop("options")
    live = {
        **values.settings.model_dump(mode="json", by_alias=True),
        **settings.model_dump(mode="json", by_alias=True, include=SHARED),
    }
    EngineLoopSettings.parse(live, "engineLoop.settings")
    deployments = [{**values.options, "name": "engine_loop", "user_config": live}]
    if values.shape.embeddings.enabled:
        deployments.append({**splicer, "name": "splicer"})
    application = {
        "name": APPLICATION,
        "import_path": "app.main:build_engine_loop",
        "route_prefix": values.route_prefix,
        "args": shape,
        "runtime_env": {**runtime_env, "env_vars": {**runtime_env.get("env_vars", {}), **values.env}},
        "deployments": deployments,
    }
    return [application]
