"""The Serve configuration that the chart renders; a test holds the chart's template to it."""

from __future__ import annotations

from typing import Any

from app.config.chart.values import ChartValues, ModelValues
from app.config.pipeline import PipelineSettings, PipelineShape, ServedModel
from app.config.serve import ModelApplication, applications, grpc_options, logging_config

#: Ray resource of the nodes that mount the index; a replica that opens it asks for a little of it.
INDEX_RESOURCE = "baton-index"
_INDEX_SHARE = 0.001


def serve_config(values: ChartValues) -> dict[str, Any]:
    """Return Serve's declarative configuration for completed values. Raises ConfigError."""
    models = [
        ModelApplication(f"model-{name}", m.engine, m.env, m.options) for name, m in sorted(values.models.items())
    ]
    shape = pipeline_shape(values)
    settings = PipelineSettings.parse(values.settings.model_dump(by_alias=True), "settings")
    settings.gateway(shape)
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8000},  # noqa: S104 - a pod's network is its own
        "logging_config": logging_config(settings.logs),
        "applications": applications(models, shape, settings, values.runtime_env),
        **({"grpc_options": grpc_options(values.grpc.port)} if values.grpc.enabled else {}),
    }


def pipeline_shape(values: ChartValues) -> PipelineShape:
    """Return the pipeline's shape with its models, pinned to the nodes that mount the index."""
    raw = values.pipeline.model_dump(mode="json", by_alias=True)
    raw["models"] = {
        name: _served(name, model, values.model_cache.offline).model_dump(by_alias=True)
        for name, model in values.models.items()
    }
    if has_mounted_index(values):
        stages = raw["stages"]
        holder = stages["retriever"] if stages["retriever"]["placement"] == "deployment" else stages["gateway"]
        holder["options"] = _pinned(holder["options"])
    return PipelineShape.parse(raw, "pipeline")


def has_mounted_index(values: ChartValues) -> bool:
    """Tell whether the store is a folder, which has to be mounted."""
    store = values.pipeline.store
    return store.kind == "lancedb" and "://" not in store.uri


def _served(name: str, model: ModelValues, offline: bool) -> ServedModel:
    loading = model.engine.get("model_loading_config", {})
    source = loading.get("model_source")
    window = model.engine.get("engine_kwargs", {}).get("max_model_len")
    return ServedModel(
        application=f"model-{name}",
        tokenizer=model.tokenizer or (source if isinstance(source, str) else None) or loading.get("model_id", ""),
        local_files_only=offline,
        chat_template=model.chat_template,
        context_tokens=model.context_tokens or window or 8192,
        tools=model.tools,
        images=model.images,
        image_tokens=model.image_tokens,
        description=model.description,
    )


def _pinned(options: dict[str, Any]) -> dict[str, Any]:
    actor = options.get("ray_actor_options") or {}
    resources = {**(actor.get("resources") or {}), INDEX_RESOURCE: _INDEX_SHARE}
    return {**options, "ray_actor_options": {**actor, "resources": resources}}
