"""What the chart's tests read out of rendered objects."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import yaml

from app.config.applications import AnalyzeLive, ArticlesLive
from app.config.base import Config
from app.config.engine_loop import EngineLoopSettings, EngineLoopShape
from app.config.pipeline import PipelineSettings, PipelineShape


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == kind]


def rayservice(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = of_kind(objects, "RayService")
    return found


def serve(objects: list[dict[str, Any]]) -> dict[str, Any]:
    found = yaml.load(rayservice(objects)["spec"]["serveConfigV2"], Loader=yaml.CSafeLoader)
    assert isinstance(found, dict)
    return found


def application(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(found for found in serve(objects)["applications"] if found["name"] == name)


def groups(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The head and the worker groups."""
    cluster = rayservice(objects)["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pod_specs(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every pod of the release: the cluster's, Jobs', of sets and of hooks."""
    for found in objects:
        if found["kind"] == "Pod":
            yield found["spec"]
        elif found["kind"] in ("Job", "StatefulSet", "Deployment"):
            yield found["spec"]["template"]["spec"]
        elif found["kind"] == "RayJob":
            cluster = found["spec"]["rayClusterSpec"]
            yield from (group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))
        elif found["kind"] == "RayService":
            yield from (group["template"]["spec"] for group in groups([found]))


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def cluster_hash(objects: list[dict[str, Any]]) -> str:
    """Hash what makes KubeRay build a second cluster; it leaves out what follows here."""
    cluster = copy.deepcopy(rayservice(objects)["spec"]["rayClusterConfig"])
    for group in cluster["workerGroupSpecs"]:
        for key in ("replicas", "minReplicas", "maxReplicas"):
            group.pop(key, None)
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        group["template"]["spec"].pop("tolerations", None)
    return hashlib.sha256(json.dumps(cluster, sort_keys=True).encode()).hexdigest()


#: What the ingress of an application beside the pipeline reads its settings with.
_LIVE: dict[str, type[Config]] = {"analyze": AnalyzeLive, "articles": ArticlesLive}


def normal(config: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the applications fill in at their start."""
    for found in config["applications"]:
        if found["name"] == "pipeline":
            found["args"] = PipelineShape.parse(found["args"], "args").model_dump(mode="json")
            for deployment in found["deployments"]:
                if deployment["name"] == "gateway":
                    settings = PipelineSettings.parse(deployment["user_config"], "user_config")
                    deployment["user_config"] = settings.model_dump(mode="json")
                    live = deployment["user_config"]
                else:
                    deployment["user_config"] = live[deployment["name"]]
        elif found["name"] == "engine-loop":
            found["args"] = EngineLoopShape.parse(found["args"], "args").model_dump(mode="json")
            loop = found["deployments"][0]
            loop["user_config"] = EngineLoopSettings.parse(loop["user_config"], "user_config").model_dump(mode="json")
        for deployment in found["deployments"]:
            if found["name"] in _LIVE and "user_config" in deployment:
                settings = _LIVE[found["name"]].parse(deployment["user_config"], "user_config")
                deployment["user_config"] = settings.model_dump(mode="json")
    return config
