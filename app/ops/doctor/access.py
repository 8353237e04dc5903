"""Checks of Secrets and of the image."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from app.config.chart.values import ChartValues
from app.ops.doctor.cluster import Cluster, Object
from app.ops.doctor.findings import Finding, fault, ok, warning

_DOCKER_HUB = "docker.io"


def check_secrets(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for each Secret and key that the values name."""
    for key, name, entries in _wanted(values):
        found = cluster.secret(name)
        if found is None:
            keys = " ".join(f"--from-literal={entry}=…" for entry in entries)
            yield fault(
                "secrets",
                f"{key} names the Secret {name}, which {cluster.namespace} does not have",
                f"kubectl -n {cluster.namespace} create secret generic {name} {keys}".rstrip(),
            )
            continue
        missing = [entry for entry in entries if entry not in (found.get("data") or {})]
        if missing:
            there = ", ".join(sorted(found.get("data") or {})) or "nothing"
            mend = f"add it, or correct the key in {key}"
            yield fault("secrets", f"the Secret {name} has no {', '.join(missing)} (it has {there})", mend)
        else:
            yield ok("secrets", f"{name} has {', '.join(entries) or 'what it needs'}")
    store = values.pipeline.store
    if store.secret_env and store.secret_env not in {*values.secret_env, *values.env}:
        yield fault(
            "secrets",
            f"pipeline.store.secretEnv reads {store.secret_env}, which no pod gets",
            f"add it to secretEnv: {store.secret_env}: {{name: SECRET, key: KEY}}",
        )


def check_image(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look whether nodes have the image, or a way to pull it."""
    name = image_name(values)
    yield from _pull_secrets(values, cluster)
    nodes = cluster.nodes()
    # Without a tag in the values the chart's own version decides: any version on a node counts.
    exact = bool(values.image.tag or values.image.digest)
    wanted = _canonical(name)
    holders = sum(any(wanted == (found if exact else _untagged(found)) for found in _images(node)) for node in nodes)
    if holders and holders == len(nodes):
        yield ok("image", f"{name} is on every node")
    elif holders:
        yield ok("image", f"{name} is on {holders} of {len(nodes)} nodes; the others pull it")
    elif values.image.pull_policy == "Never":
        yield fault("image", f"{name} is on no node, and image.pullPolicy is Never", "load it, or set IfNotPresent")
    elif _registry(name) == _DOCKER_HUB and "/" not in values.image.repository:
        yield fault(
            "image",
            f"{name} is on no node and names no registry, so nodes would look for it among Docker Hub's own images",
            "push it to your registry (`make image`, docker push) and set image.repository, or load it into the nodes",
        )
    else:
        yield ok("image", f"{name} is on no node yet; nodes pull it from {_registry(name)}")


def image_name(values: ChartValues) -> str:
    """Return the image's full name; without a tag in the values it carries the chart's own."""
    image = values.image
    if image.digest:
        return f"{image.repository}@{image.digest}"
    return f"{image.repository}:{image.tag}" if image.tag else image.repository


def _wanted(values: ChartValues) -> Iterator[tuple[str, str, list[str]]]:
    for variable, place in values.secret_env.items():
        yield f"secretEnv.{variable}", place.name, [place.key]
    password = values.gcs_fault_tolerance.password_secret
    if values.gcs_fault_tolerance.enabled and password:
        yield "gcsFaultTolerance.passwordSecret", password.name, [password.key]
    if values.auth.existing_secret:
        yield "auth.existingSecret", values.auth.existing_secret, [values.auth.key]
    if values.auth.client_secret:
        yield "auth.clientSecret", values.auth.client_secret.name, [values.auth.client_secret.key]
    tls = ["tls.crt", "tls.key"]
    if values.gateway.ingress.enabled and values.gateway.ingress.tls_secret:
        yield "gateway.ingress.tlsSecret", values.gateway.ingress.tls_secret, tls
    own = values.gateway.http_route.gateway
    if values.gateway.http_route.enabled and own.create and own.tls_secret:
        yield "gateway.httpRoute.gateway.tlsSecret", own.tls_secret, tls


def _pull_secrets(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    registry = _registry(values.image.repository)
    for entry in values.image.pull_secrets:
        name = entry if isinstance(entry, str) else entry.name
        found = cluster.secret(name)
        hosts = _hosts(found or {})
        if found is None:
            mend = f"kubectl -n {cluster.namespace} create secret docker-registry {name} --docker-server={registry} …"
            yield fault("image", f"the pull secret {name} does not exist in {cluster.namespace}", mend)
        elif hosts is None:
            yield fault(
                "image", f"the Secret {name} is no pull secret", "make it of type kubernetes.io/dockerconfigjson"
            )
        elif not any(registry in host for host in hosts):
            yield warning(
                "image",
                f"the pull secret {name} is for {', '.join(hosts) or 'no registry'}, and the image lies in {registry}",
                f"make one for {registry}, or correct image.repository",
            )
        else:
            yield ok("image", f"the pull secret {name} is for {registry}")


def _hosts(secret: Object) -> list[str] | None:
    """Return the registries that a pull secret is for, ``None`` where it is none."""
    text = (secret.get("data") or {}).get(".dockerconfigjson", "")
    try:
        return sorted(json.loads(base64.b64decode(text, validate=True))["auths"])
    except (ValueError, KeyError, TypeError):
        return None


def _registry(name: str) -> str:
    first = name.split("/", 1)[0]
    return first if "/" in name and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB


def _canonical(name: str) -> str:
    """Return an image's name as container run times write it."""
    if _registry(name) != _DOCKER_HUB or name.startswith(f"{_DOCKER_HUB}/"):
        return name
    return f"{_DOCKER_HUB}/{name}" if "/" in name else f"{_DOCKER_HUB}/library/{name}"


def _untagged(name: str) -> str:
    return name.split("@", 1)[0].rsplit(":", 1)[0]


def _images(node: Object) -> Iterator[str]:
    for image in node.get("status", {}).get("images") or []:
        yield from (_canonical(name) for name in image.get("names") or [])
