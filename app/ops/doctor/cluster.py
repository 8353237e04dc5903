"""What the doctor reads of a cluster, as plain JSON. It writes nothing.

It reads CRDs, Deployments, Nodes, StorageClasses, RuntimeClasses, PriorityClasses and GatewayClasses of the cluster,
and Secrets, PersistentVolumeClaims, RayServices and the Namespace of the release. What it may not read becomes a
warning.
"""

from __future__ import annotations

import json
from typing import Any

from app.errors import StageUnavailable
from app.ops.kube_client import api_client

Object = dict[str, Any]

_TIMEOUT_SECONDS = 15
_OPERATORS = "app.kubernetes.io/name in (kuberay,kuberay-operator)"
_NOT_FOUND, _REFUSED = 404, (401, 403)


class Forbidden(Exception):
    """The account that the doctor runs under may not read something; ``what`` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Cluster:
    """A cluster through the Kubernetes API, seen from one release in its namespace."""

    def __init__(self, api: Any, namespace: str, release: str) -> None:
        self.namespace = namespace
        self.release = release
        self._api = api
        self._seen: dict[str, Object | None] = {}

    def version(self) -> tuple[int, int]:
        """Return Kubernetes' major and minor version."""
        found = self._read("the version", "/version/") or {}
        digits = "".join(letter for letter in str(found.get("minor", "0")) if letter.isdigit())
        return int(found.get("major", 0)), int(digits or 0)

    def custom_resource(self, name: str) -> Object | None:
        """Return the definition of a custom resource."""
        place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        return self._read("custom resource definitions", f"{place}/{name}")

    def operators(self) -> list[Object]:
        """Return the Deployments of KubeRay's operator in all namespaces."""
        return self._list("deployments of all namespaces", "/apis/apps/v1/deployments", _OPERATORS)

    def nodes(self) -> list[Object]:
        """Return all nodes."""
        return self._list("nodes", "/api/v1/nodes")

    def storage_classes(self) -> list[Object]:
        """Return all storage classes."""
        return self._list("storage classes", "/apis/storage.k8s.io/v1/storageclasses")

    def runtime_class(self, name: str) -> Object | None:
        """Return a runtime class."""
        return self._read("runtime classes", f"/apis/node.k8s.io/v1/runtimeclasses/{name}")

    def priority_class(self, name: str) -> Object | None:
        """Return a priority class."""
        return self._read("priority classes", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")

    def gateway_class(self, name: str) -> Object | None:
        """Return a gateway class."""
        return self._read("gateway classes", f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{name}")

    def ray_service(self, name: str) -> Object | None:
        """Return a RayService of the release's namespace."""
        return self._read("RayServices", f"/apis/ray.io/v1/namespaces/{self.namespace}/rayservices/{name}")

    def namespace_object(self) -> Object | None:
        """Return the release's namespace."""
        return self._read("the namespace", f"/api/v1/namespaces/{self.namespace}")

    def secret(self, name: str) -> Object | None:
        """Return a Secret of the release's namespace."""
        return self._read("secrets", f"/api/v1/namespaces/{self.namespace}/secrets/{name}")

    def claim(self, name: str) -> Object | None:
        """Return a volume claim of the release's namespace."""
        return self._read("volume claims", f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{name}")

    def _list(self, what: str, path: str, selector: str = "") -> list[Object]:
        return list((self._read(what, path, selector) or {}).get("items") or [])

    def _read(self, what: str, path: str, selector: str = "") -> Object | None:
        """Return what lies at a path, ``None`` where nothing does. A path is read once."""
        if path not in self._seen:
            self._seen[path] = self._fetch(what, path, selector)
        return self._seen[path]

    def _fetch(self, what: str, path: str, selector: str) -> Object | None:
        # By path, since the client's typed classes take seconds to import, and all that is wanted is the JSON.
        from urllib3.exceptions import HTTPError

        query = [("labelSelector", selector)] if selector else []
        request = self._api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
        try:
            answer = self._api.rest_client.request(*request[:3], _request_timeout=_TIMEOUT_SECONDS)
        except (HTTPError, OSError) as error:
            raise StageUnavailable(
                f"The Kubernetes API at {self._api.configuration.host} does not answer ({type(error).__name__}): "
                "is the context of your kubeconfig the right one, and the cluster up?"
            ) from None
        if answer.status == _NOT_FOUND:
            return None
        if answer.status in _REFUSED:
            raise Forbidden(what)
        body = answer.read()
        if answer.status >= 300:
            raise StageUnavailable(f"The Kubernetes API answered {answer.status} when asked for {what}.")
        found: Object = json.loads(body)
        return found


def connect(namespace: str, release: str, context: str | None = None) -> Cluster:
    """Return the cluster of the kubeconfig, or inside a pod the one it runs in. Raises ConfigError."""
    return Cluster(api_client(context), namespace, release)
