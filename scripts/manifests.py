"""Writes manifests/: every install shape for `kubectl apply -k`, and its Serve configuration for Ray alone."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from app.config.chart.serve import INDEX_RESOURCE
from scripts.helm_render import SHAPES, Renderer, shape_values

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"
NAME = "baton"
_BANNER = "# Written by `make generate` from charts/baton; change the chart, not this file.\n"
_OPERATOR = "https://github.com/ray-project/kuberay/ray-operator/config/default?ref=v1.6.0"
Object = dict[str, Any]


#: The writer in C is ten times as fast.
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Writes text of several lines as it is read."""


def _text(dumper: Any, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump(*documents: Any) -> str:
    """Return YAML under the banner."""
    return _BANNER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def plain(objects: list[Object]) -> list[Object]:
    """Return the objects as `kubectl` applies them: without Helm's hooks, labels and annotations."""
    kept = []
    for found in copy.deepcopy(objects):
        metadata = found["metadata"]
        annotations = metadata.get("annotations", {})
        if "helm.sh/hook" in annotations:
            continue
        metadata["annotations"] = {key: value for key, value in annotations.items() if not key.startswith("helm.sh/")}
        if not metadata["annotations"]:
            del metadata["annotations"]
        for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            metadata["labels"].pop(label)
        kept.append(found)
    return kept


def without_index(serve: Object) -> Object:
    """Return a Serve configuration without the pin to pods that mount the index: here are no pods."""
    for application in serve["applications"]:
        for deployment in application["deployments"]:
            resources = deployment.get("ray_actor_options", {}).get("resources", {})
            if resources.pop(INDEX_RESOURCE, None) is not None and not resources:
                del deployment["ray_actor_options"]["resources"]
            if deployment.get("ray_actor_options") == {}:
                del deployment["ray_actor_options"]
    return serve


def _kustomization(resources: list[str], **more: Any) -> str:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return dump({**kind, **more, "resources": resources})


def _namespace(name: str, level: str) -> Object:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _level(rayservice: Object) -> str:
    """The strictest pod-security level that a shape passes: RDMA needs a capability that `restricted` forbids."""
    return "privileged" if "IPC_LOCK" in str(rayservice) else "restricted"


@functools.cache
def files() -> dict[Path, str]:
    """Return every manifest with its text."""
    chart = Renderer()
    shapes = {shape: plain(chart.objects(shape_values(shape), name=NAME, namespace=NAME)) for shape in SHAPES}
    base = [found for found in shapes[SHAPES[0]] if all(found in objects for objects in shapes.values())]
    out = {
        MANIFESTS / "base" / "objects.yaml": dump(*base),
        MANIFESTS / "base" / "kustomization.yaml": _kustomization(["objects.yaml"], namespace=NAME),
        MANIFESTS / "operator" / "kustomization.yaml": _kustomization(
            ["namespace.yaml", _OPERATOR], namespace="kuberay-system"
        ),
        MANIFESTS / "operator" / "namespace.yaml": dump(_namespace("kuberay-system", "restricted")),
    }
    for shape, objects in shapes.items():
        (rayservice,) = [found for found in objects if found["kind"] == "RayService"]
        others = [found for found in objects if found not in base and found is not rayservice]
        folder = MANIFESTS / "overlays" / shape
        resources = ["../../base", "namespace.yaml", "objects.yaml", "rayservice.yaml"]
        out[folder / "kustomization.yaml"] = _kustomization(resources, namespace=NAME)
        out[folder / "namespace.yaml"] = dump(_namespace(NAME, _level(rayservice)))
        out[folder / "objects.yaml"] = dump(*others)
        out[folder / "rayservice.yaml"] = dump(rayservice)
        serve = yaml.safe_load(rayservice["spec"]["serveConfigV2"])
        out[MANIFESTS / "serve" / f"{shape}.yaml"] = dump(without_index(serve))
    return out
