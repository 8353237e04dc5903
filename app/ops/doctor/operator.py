"""Checks of KubeRay: definitions, version, feature gates, namespaces it watches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.config.chart.values import ChartValues
from app.ops.doctor.cluster import Cluster, Object
from app.ops.doctor.findings import Finding, fault, ok, warning

TRIED = (1, 6)
INCREMENTAL = "RayServiceIncrementalUpgrade"
_INSTALL = (
    "helm install kuberay-operator kuberay-operator --repo https://ray-project.github.io/kuberay-helm/ "
    "--version 1.6.0 --namespace kuberay-system --create-namespace"
)
_GATEWAY_INSTALL = "install the Gateway API's standard channel and a controller for it"


def check_definitions(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for the custom resources that the chart makes objects of."""
    route = values.gateway.http_route
    wanted = [("rayservices.ray.io", "v1", f"install KubeRay: {_INSTALL}")]
    if route.enabled:
        wanted.append(
            ("httproutes.gateway.networking.k8s.io", "v1", f"{_GATEWAY_INSTALL}, or turn gateway.httpRoute off")
        )
    if values.upgrade.type == "NewClusterWithIncrementalUpgrade" or route.gateway.create:
        wanted.append(("gateways.gateway.networking.k8s.io", "v1", _GATEWAY_INSTALL))
    for name, version, mend in wanted:
        found = cluster.custom_resource(name)
        served = [entry["name"] for entry in (found or {}).get("spec", {}).get("versions", []) if entry.get("served")]
        if version in served:
            yield ok("definitions", f"{name} is there in version {version}")
        elif found:
            yield fault(
                "definitions", f"{name} is there in {', '.join(served) or 'no version'}, not in {version}", mend
            )
        else:
            yield fault("definitions", f"the cluster has no {name}", mend)


def check_gateway_classes(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for the gateway classes that the values name."""
    wanted = {}
    if values.upgrade.type == "NewClusterWithIncrementalUpgrade":
        wanted["upgrade.incremental.gatewayClassName"] = values.upgrade.incremental.gateway_class_name
    if values.gateway.http_route.gateway.create:
        wanted["gateway.httpRoute.gateway.className"] = values.gateway.http_route.gateway.class_name
    for key, name in wanted.items():
        if not name:
            yield fault(
                "gateway class", f"{key} is empty", f"set {key} to a class that `kubectl get gatewayclass` lists"
            )
        elif cluster.gateway_class(name) is None:
            yield fault("gateway class", f"the gateway class {name} does not exist", f"create it, or correct {key}")
        else:
            yield ok("gateway class", f"{name} is there")


def check_operator(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for a running operator that is new enough, watches this namespace and has the gates switched on."""
    found = cluster.operators()
    if not found:
        yield fault("operator", "no KubeRay operator runs in the cluster", f"install it: {_INSTALL}")
        return
    for operator in found:
        yield _running(operator)
        yield _version(operator)
    if not any(_watches(operator, cluster.namespace) for operator in found):
        yield fault(
            "operator",
            f"it watches other namespaces than {cluster.namespace}",
            f"add {cluster.namespace} to watchNamespace of the operator's chart, or install into a watched namespace",
        )
    yield from _gates(values, found)


def _gates(values: ChartValues, operators: list[Object]) -> Iterator[Finding]:
    wanted = set(values.upgrade.operator_feature_gates)
    if values.upgrade.type == "NewClusterWithIncrementalUpgrade":
        wanted.add(INCREMENTAL)
    for gate in sorted(wanted):
        if any(_gate(operator, gate) for operator in operators):
            yield ok("feature gates", f"{gate} is switched on")
        else:
            yield fault(
                "feature gates",
                f"{gate} is not switched on in the operator",
                f"install the operator with --feature-gates={gate}=true (in its chart: featureGates), "
                "or change upgrade.type and upgrade.operatorFeatureGates",
            )


def _container(operator: Object) -> Object:
    containers: list[Object] = operator["spec"]["template"]["spec"]["containers"]
    return next((entry for entry in containers if "operator" in entry.get("image", "")), containers[0])


def _arguments(operator: Object) -> list[str]:
    container = _container(operator)
    return [*container.get("command", []), *container.get("args", [])]


def _option(operator: Object, name: str) -> str | None:
    """Return the last value of a flag of the operator: ``--name=value``, ``-name=value`` or two words."""
    arguments, found = _arguments(operator), None
    for index, argument in enumerate(arguments):
        flag, _, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and flag == name:
            found = value or (arguments[index + 1] if index + 1 < len(arguments) else "")
    return found


def _gate(operator: Object, gate: str) -> bool:
    states = dict(pair.partition("=")[::2] for pair in (_option(operator, "feature-gates") or "").split(","))
    on_by_default = {"RayClusterStatusConditions", "RayJobDeletionPolicy", "RayMultiHostIndexing"}
    return states.get(gate, "true" if gate in on_by_default else "false").strip().lower() == "true"


def _watches(operator: Object, namespace: str) -> bool:
    watched = [name.strip() for name in (_option(operator, "watch-namespace") or "").split(",") if name.strip()]
    return not watched or namespace in watched


def _name(operator: Object) -> str:
    return f"{operator['metadata']['namespace']}/{operator['metadata']['name']}"


def _running(operator: Object) -> Finding:
    if operator.get("status", {}).get("availableReplicas", 0) >= 1:
        return ok("operator", f"{_name(operator)} runs")
    return fault(
        "operator",
        f"{_name(operator)} is not available",
        f"see `kubectl -n {operator['metadata']['namespace']} describe deployment {operator['metadata']['name']}`",
    )


def _version(operator: Object) -> Finding:
    image = _container(operator).get("image", "")
    match = re.search(r":v?(\d+)\.(\d+)(\.\d+)?", image)
    tried = ".".join(map(str, TRIED))
    if match is None:
        return warning(
            "operator", f"its version cannot be told from {image!r}", f"make sure that it is {tried} or newer"
        )
    version = (int(match[1]), int(match[2]))
    if version < TRIED:
        return fault(
            "operator",
            f"its version is {version[0]}.{version[1]}, and this chart needs {tried}",
            f"upgrade: {_INSTALL}",
        )
    return ok("operator", f"its version is {match[0].lstrip(':')}")


def check_release(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look whether the release's name is fit for a RayService, and whether somebody else's is there already."""
    name = full_name(values, cluster.release)
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", name):
        yield fault(
            "release",
            f"its RayService would be called {name}: at most 47 characters of a-z, 0-9 and -, a letter first",
            "choose another release name, or set fullnameOverride",
        )
        return
    found = cluster.ray_service(name)
    if found is None:
        yield ok("release", f"the name {name} is free in {cluster.namespace}")
        return
    owner = (found["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name")
    if owner == cluster.release:
        yield ok("release", f"{name} is there: this would be an upgrade")
    else:
        yield fault(
            "release",
            f"a RayService {name} that {f'the release {owner}' if owner else 'no release'} owns is there already",
            "remove it, choose another release name, or set fullnameOverride",
        )


def full_name(values: ChartValues, release: str) -> str:
    """Return the name of the release's objects, as the chart makes it."""
    name = values.name_override or "baton"
    return values.fullname_override or (release if name in release else f"{release}-{name}")
