"""The chart's values as rows: one per key, with what it is for and what it is by default, read off the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.chart.values import ChartValues

#: What a change sets off → the top-level keys.
GROUPS: dict[str, tuple[str, ...]] = {
    "Changes in place: nothing restarts, no request is lost": (
        "settings",
        "collections",
        "gateway",
        "network_policy",
        "pod_disruption_budget",
        "upgrade",
        "doctor",
        "rollout",
        "batch",
        "test",
        "jobs",
        "observability",
        "extra_objects",
        "common_labels",
        "common_annotations",
    ),
    "Restarts one application: a model, the pipeline or one beside it; the other ones serve on": (
        "models",
        "pipeline",
        "applications",
        "engine_loop",
        "runtime_env",
    ),
    "Replaces the Ray cluster: a second one starts beside the old one and takes over (`upgrade`)": (
        "image",
        "ray_version",
        "grpc",
        "head",
        "worker_groups",
        "autoscaling",
        "env",
        "secret_env",
        "index",
        "model_cache",
        "gcs_fault_tolerance",
        "auth",
        "log_collector",
        "service_account",
        "security",
        "name_override",
        "fullname_override",
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One key: where it stands, what it is for and what it is by default; ``unset`` where it has no value."""

    path: tuple[str, ...]
    description: str
    default: Any
    unset: bool
    nested: bool


def rows(model: BaseModel, path: tuple[str, ...] = (), names: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Yield the keys of ``model`` in order, those of nested models after their own."""
    fields = type(model).model_fields
    for name in names or tuple(fields):
        info, value = fields[name], getattr(model, name)
        here = (*path, info.alias or name)
        nested = isinstance(value, BaseModel) and not _is_resources(info)
        yield Row(
            here, " ".join((info.description or "").replace("``", "`").split()), plain(value), value is None, nested
        )
        if nested:
            yield from rows(value, here)


def _is_resources(info: FieldInfo) -> bool:
    return getattr(info.annotation, "__name__", "") == "Resources"


def plain(value: Any) -> Any:
    """Return a value of a model as YAML holds it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.loads(json.dumps(value, default=plain))


def flow(value: Any) -> str:
    """Return YAML on one line, strings quoted where a reader might take them for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def unread() -> set[str]:
    """Return top-level keys that no group names."""
    named = {name for names in GROUPS.values() for name in names}
    return set(ChartValues.model_fields) - named
