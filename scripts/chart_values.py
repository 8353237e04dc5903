"""Writes values.yaml and the README's table from the Pydantic models: one comment and one default per key."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.chart.pods import DEFAULT_GROUPS, WorkerGroup
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
        "test",
        "extra_objects",
        "name_override",
        "fullname_override",
        "common_labels",
        "common_annotations",
    ),
    "Restarts one application: a model, or the pipeline; the other ones serve on": (
        "models",
        "pipeline",
        "runtime_env",
    ),
    "Replaces the Ray cluster: a second one starts beside the old one and takes over (`upgrade`)": (
        "image",
        "ray_version",
        "head",
        "worker_groups",
        "autoscaling",
        "env",
        "secret_env",
        "index",
        "model_cache",
        "gcs_fault_tolerance",
        "service_account",
        "security",
    ),
}
_HEADER = """\
# Values of the chart baton. Written by `make generate` from app/config/chart; change the models, not this file.
#
# They stand in three groups, by what a change sets off when it reaches a running release with `helm upgrade`. Whole
# install shapes to start from: ci/*-values.yaml. Names of fields inside `engine`, `options` and Kubernetes' structures
# are those of ray.serve.llm, Ray Serve and Kubernetes, verbatim.
"""
_EXAMPLES = {
    "models": """\
# models:
#   llama:
#     engine:
#       model_loading_config: {model_id: llama, model_source: meta-llama/Llama-3.1-8B-Instruct}
#       engine_kwargs: {max_model_len: 8192}
#     options: {max_ongoing_requests: 64, autoscaling_config: {min_replicas: 1, max_replicas: 2}}
""",
    "settings.profiles": """\
# profiles:
#   default:
#     model: llama
#     retrieval: {enabled: true, collections: [docs], topK: 4}
""",
    "collections": """\
# collections:
#   docs: {path: /opt/baton/samples/docs}
""",
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
            here, " ".join((info.description or "").replace("``", "`").split()), _plain(value), value is None, nested
        )
        if nested:
            yield from rows(value, here)


def _is_resources(info: FieldInfo) -> bool:
    return getattr(info.annotation, "__name__", "") == "Resources"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.loads(json.dumps(value, default=_plain))


def values_yaml() -> str:
    """Return the text of values.yaml."""
    lines = [_HEADER]
    for title, names in GROUPS.items():
        lines += ["", "# " + "-" * 116, f"# {title}", "# " + "-" * 116]
        for row in rows(ChartValues(), names=names):
            lines += _lines(row)
    return "\n".join(lines) + "\n"


def _lines(row: Row) -> list[str]:
    indent = "  " * (len(row.path) - 1)
    out = [""] if len(row.path) == 1 else []
    out += [f"{indent}# {line}" for line in textwrap.wrap(row.description, 116 - len(indent))]
    out += [indent + line for line in _EXAMPLES.get(".".join(row.path), "").splitlines()]
    key = row.path[-1]
    if row.unset:
        return [*out, f"{indent}# {key}:"]
    if row.path == ("workerGroups",):
        return [*out, f"{key}:", *_groups()]
    return [*out, f"{indent}{key}:" if row.nested else f"{indent}{key}: {flow(row.default)}"]


def _groups() -> list[str]:
    """The first group with every key and its comment, further ones with what differs from the defaults of a group."""
    out = []
    for row in rows(DEFAULT_GROUPS[0]):
        out += ["    " + line for line in _lines(row) if line]
    out[0] = out[0].replace("    #", "  - #", 1)
    plain = _plain(WorkerGroup(name="x"))
    for group in DEFAULT_GROUPS[1:]:
        differing = {key: value for key, value in _plain(group).items() if plain.get(key) != value}
        out.append(f"  - {flow(differing)}")
    return out


def flow(value: Any) -> str:
    """Return YAML on one line, strings quoted where a reader might take them for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def table() -> str:
    """Return the README's tables: one per group, one row per key."""
    out = []
    for title, names in GROUPS.items():
        out += [f"### {title}", "", "| key | default | what it is |", "|---|---|---|"]
        for row in rows(ChartValues(), names=names):
            out.append(_table_row(row))
            if row.path == ("workerGroups",):
                out += [_table_row(_of_group(inner)) for inner in rows(WorkerGroup(name="x"))]
        out.append("")
    return "\n".join(out)


def _of_group(row: Row) -> Row:
    blank = row.path == ("name",)
    return Row(("workerGroups[]", *row.path), row.description, row.default, row.unset or blank, row.nested)


def _table_row(row: Row) -> str:
    default = "" if row.nested or row.unset else f"`{flow(row.default)}`"
    if row.path == ("workerGroups",):
        default = "two groups, `gpu-workers` and `cpu-workers`"
    cells = (f"`{'.'.join(row.path)}`", default, row.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def unread() -> set[str]:
    """Return top-level keys that no group names."""
    named = {name for names in GROUPS.values() for name in names}
    return set(ChartValues.model_fields) - named
