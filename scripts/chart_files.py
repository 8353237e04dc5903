"""Writes what the chart derives from the Pydantic models: values.schema.json, files/defaults.yaml and README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from app.config.chart.batch import BatchValues
from app.config.chart.objects import CollectionValues
from app.config.chart.pods import WorkerGroup
from app.config.chart.values import ChartValues, ModelValues
from app.config.deployment_options import DEPRECATED, AutoscalingOptions
from app.config.engine_loop import EngineLoopShape
from app.config.environment import COMMON, PODS
from scripts import chart_table, chart_values, kuberay_schema

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "baton"
_BANNER = "# Written by `make generate` from app/config/chart; change the models, not this file.\n"


def schema() -> dict[str, Any]:
    """Return the values' schema, closed, in the draft that every Helm knows."""
    raw = ChartValues.model_json_schema(by_alias=True)
    raw["$schema"] = "http://json-schema.org/draft-07/schema#"
    raw["title"] = "Values of the chart baton"
    # A parent chart hands both down.
    raw["properties"]["global"] = {"type": "object", "description": "Values of a parent chart; not read."}
    raw["properties"]["enabled"] = {"type": "boolean", "description": "A parent chart's condition; not read."}
    found: dict[str, Any] = _plain(raw)
    for properties, name in (
        (found["properties"], "models"),
        (found["properties"], "collections"),
        (found["properties"], "batch"),
        (found["$defs"]["ChartSettings"]["properties"], "profiles"),
        (found["$defs"]["ChartSettings"]["properties"], "routing"),
        (found["$defs"]["RoutingConfig"]["properties"], "variants"),
    ):
        # A later values file takes an entry out with null.
        entries = properties[name]["patternProperties"]
        properties[name]["patternProperties"] = {
            pattern: {"anyOf": [entry, {"type": "null"}]} for pattern, entry in entries.items()
        }
    _close_verbatim(found)
    return found


def _close_verbatim(found: dict[str, Any]) -> None:
    """Hold what is handed through to Kubernetes to KubeRay's CRD, which the API server would hold it to later."""
    crd = json.loads(kuberay_schema.TARGET.read_text(encoding="utf-8"))["$defs"]
    pod = next(part["properties"] for part in crd.values() if "tolerations" in part.get("properties", {}))
    container = next(part["properties"] for part in crd.values() if "volumeMounts" in part.get("properties", {}))
    parts = {name: pod[name] for name in ("affinity", "tolerations", "topologySpreadConstraints", "volumes")}
    parts["volumeMounts"] = container["volumeMounts"]
    for name in ("HeadValues", "WorkerGroup", "JobValues", "RedisServer"):
        properties = found["$defs"][name]["properties"]
        for key in parts.keys() & properties.keys():
            properties[key] = {**parts[key], "description": properties[key]["description"]}
    volume = crd[parts["volumes"]["items"]["$ref"].rsplit("/", 1)[1]]
    for name in ("CollectionValues", "BatchValues"):
        source = found["$defs"][name]["properties"]["volume"]
        source |= {"properties": volume["properties"], "additionalProperties": False}
    wanted = [json.dumps([parts, volume])]
    while wanted:
        for name in re.findall(r"#/\$defs/([0-9a-f]{12})", wanted.pop()):
            if name not in found["$defs"]:
                found["$defs"][name] = crd[name]
                wanted.append(json.dumps(crd[name]))


def _plain(node: Any) -> Any:
    """Drop what only repeats (titles, defaults), and let deprecated options pass on to the sentence about them."""
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: {name: _plain(value) for name, value in node[key].items()}
        if key in {"properties", "$defs"}
        else _plain(value)
        for key, value in node.items()
        if key not in {"default", "format"}
        and not (key == "title" and isinstance(value, str) and "$schema" not in node)
    }
    kept = _nullable(kept)
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    properties = kept.get("properties", {})
    if "autoscaling_config" in properties or "target_ongoing_requests" in properties:
        for name, instead in DEPRECATED.items():
            properties.setdefault(name, {"description": f"Deprecated: use {instead}."})
    return kept


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    """Write a choice of one type and null as one type: Helm then tells what is wrong in one line, not in four."""
    match node.get("anyOf"):
        case [{"type": str(kind), **rest}, {"type": "null"}]:
            chosen = {key: value for key, value in node.items() if key != "anyOf"}
            if "enum" in rest:
                rest["enum"] = [*rest["enum"], None]
            return {**rest, **chosen, "type": [kind, "null"]}
    return node


def defaults() -> dict[str, Any]:
    """Return the defaults that templates fill in."""
    return {
        "values": _dump(ChartValues()),
        "workerGroup": _dump(WorkerGroup(name="x")) | {"name": ""},
        "engineLoopShape": _without(EngineLoopShape(model="x", source="x"), "model", "source"),
        "model": _without(ModelValues(engine={}), "engine"),
        "collection": _without(CollectionValues(path="x"), "path"),
        "batch": _without(BatchValues(input="/x.jsonl", output="/y.jsonl"), "input", "output"),
        "autoscaling": AutoscalingOptions().model_dump(exclude_none=True),
        "environment": {**COMMON, **PODS},
    }


def _dump(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _without(model: Any, *given: str) -> dict[str, Any]:
    """Return a model's defaults without the keys that everybody has to give."""
    return {key: value for key, value in _dump(model).items() if key not in given}


def readme() -> str:
    """Return the chart's README: its text, with the tables of values put in."""
    return (ROOT / "scripts" / "chart_readme.md").read_text(encoding="utf-8").replace("{{values}}", chart_table.table())


def files() -> dict[Path, str]:
    """Return every derived file of the chart with its text."""
    return {
        CHART / "values.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False, sort_keys=True) + "\n",
        CHART / "values.yaml": chart_values.values_yaml(),
        CHART / "README.md": readme(),
        CHART / "files" / "defaults.yaml": _BANNER + yaml.safe_dump(defaults(), allow_unicode=True, width=120),
    }
