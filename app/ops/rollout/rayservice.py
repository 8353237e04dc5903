"""A RayService as the target: weights in its serveConfigV2, the record in an annotation, a Lease as the lock."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import yaml

from app.config.rollout import Plan
from app.errors import ConfigError, StageUnavailable
from app.ops.rollout.state import Entry, State
from app.ops.rollout.target import Held, Snapshot, Stale, ailing, put_settings, settings_of

Object = dict[str, Any]
#: States of the replicas that there are, by application and deployment.
States = Mapping[str, Mapping[str, Sequence[str]]]

ANNOTATION = "baton/rollout"
_TIMEOUT_SECONDS = 15
_LEASE_SECONDS = 60
_DASHBOARD_PORT = 8265
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_WARNINGS = frozenset({"CanaryHeld", "CanaryRolledBack", "CanaryAborted"})


class KubernetesTarget:
    """One RayService, through the Kubernetes API. ``api``: an ``ApiClient``."""

    atomic = True

    def __init__(self, api: Any, namespace: str, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._sleep = sleep
        self._holder = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self._uid = ""

    # --- reading and writing ------------------------------------------------------------------------------------------

    def read(self, plan: Plan | State) -> Snapshot:
        """Return what the RayService holds. Raises ConfigError, StageUnavailable."""
        service = self.ray_service()
        config = serve_config(service)
        status = (service.get("status") or {}).get("activeServiceStatus") or {}
        statuses = status.get("applicationStatuses") or {}
        return Snapshot(
            settings_of(config, plan),
            _state(service),
            ailing(config, plan, statuses, "serveDeploymentStatuses"),
            service,
        )

    def state(self) -> State | None:
        """Return the record alone. Raises ConfigError, StageUnavailable."""
        return _state(self.ray_service())

    def ray_service(self) -> Object:
        """Return the RayService. Raises ConfigError, StageUnavailable."""
        status, found = self.ask("GET", self._place)
        if status == 404:
            raise ConfigError(f"There is no RayService {self._name} in the namespace {self._namespace}.")
        service = _checked(status, found, f"the RayService {self._name}")
        self._uid = service["metadata"].get("uid", "")
        return service

    def replicas(self) -> States:
        """Return the replicas that there are now, as Serve tells them. Raises ConfigError, StageUnavailable.

        KubeRay's status does not count them, so this asks the head's dashboard, through the Kubernetes API.
        """
        head = f"/api/v1/namespaces/{self._namespace}/services/{self._name}-head-svc:{_DASHBOARD_PORT}"
        what = f"{head.rpartition('/')[2]} through the API (get of services/proxy), which tells the replicas that run"
        status, body = self.ask("GET", f"{head}/proxy/api/serve/applications/")
        found = _checked(status, body, what).get("applications")
        if not isinstance(found, dict):
            raise StageUnavailable(f"No Serve answered when asked for {what}.")
        return {
            name: {
                part: [str(replica.get("state")) for replica in deployment.get("replicas") or []]
                for part, deployment in (application.get("deployments") or {}).items()
            }
            for name, application in found.items()
        }

    def write(self, snapshot: Snapshot, state: State) -> None:
        """Write record and settings in one request. Raises :class:`Stale`, StageUnavailable."""
        service = snapshot.token
        patch: Object = {
            "metadata": {
                "resourceVersion": service["metadata"]["resourceVersion"],
                "annotations": {ANNOTATION: state.model_dump_json(by_alias=True)},
            }
        }
        if not snapshot.settings.equals(state.now):
            config = serve_config(service)
            put_settings(config, state, state.now)
            patch["spec"] = {"serveConfigV2": json.dumps(config, indent=2, ensure_ascii=False) + "\n"}
        status, found = self.ask("PATCH", self._place, patch, "application/merge-patch+json")
        if status == 409:
            raise Stale
        _checked(status, found, f"a change of the RayService {self._name}")

    @property
    def record(self) -> str:
        """Where the record lies, for people."""
        return f"the annotation {ANNOTATION} of the RayService {self._name}"

    @property
    def _place(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self._namespace}/rayservices/{self._name}"

    # --- events -------------------------------------------------------------------------------------------------------

    def announce(self, state: State, entry: Entry) -> None:
        """Make an Event of a line. Its name follows from the line: a second one is refused, and that is right."""
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._name}.rollout-{state.id}-{entry.number}",
                "namespace": self._namespace,
            },
            "involvedObject": {
                "apiVersion": "ray.io/v1",
                "kind": "RayService",
                "name": self._name,
                "namespace": self._namespace,
                "uid": self._uid,
            },
            "reason": entry.reason,
            "message": entry.text[:1000],
            "type": "Warning" if entry.reason in _WARNINGS else "Normal",
            "source": {"component": "baton-rollout"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        status, found = self.ask("POST", f"/api/v1/namespaces/{self._namespace}/events", body)
        if status != 409:
            _checked(status, found, "an Event")

    # --- the lock -----------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the Lease within the block. One that a dead runner left is waited for. Raises :class:`Held`."""
        seen = self._take()
        if seen is not None:
            self._sleep(_remaining(seen) + 1)
            again = self._take()
            if again is not None:
                raise Held(
                    f"Another runner, {again['spec'].get('holderIdentity')}, has the rollout of {self._name}: watch it "
                    "with `status`, end it with `abort`, or stop that runner and start this one again."
                )
        try:
            yield
        finally:
            self._release()

    def renew(self) -> None:
        """Renew the Lease. Raises :class:`Held` where another runner has it. No answer is no reason to end."""
        try:
            found = self._take()
        except StageUnavailable:
            return
        if found is not None:
            raise Held(f"Another runner, {found['spec'].get('holderIdentity')}, took over: this one ends.")

    def _take(self) -> Object | None:
        """Take or renew the Lease; return the one of another runner that lives."""
        place = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        name = f"{self._name}-rollout"
        status, lease = self.ask("GET", f"{place}/{name}")
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime(_TIME),
        }
        if status == 404:
            head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
            status, made = self.ask("POST", place, {**head, "spec": spec})
        else:
            lease = _checked(status, lease, f"the Lease {name}")
            holder = (lease.get("spec") or {}).get("holderIdentity")
            if holder and holder != self._holder and _remaining(lease) > 0:
                return lease
            status, made = self.ask("PUT", f"{place}/{name}", {**lease, "spec": spec})
        if status == 409:  # another one was quicker
            return self._take()
        _checked(status, made, f"the Lease {name}")
        return None

    def _release(self) -> None:
        place = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{self._name}-rollout"
        try:
            status, lease = self.ask("GET", place)
            if status == 200 and lease["spec"].get("holderIdentity") == self._holder:
                self.ask("PUT", place, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
        except StageUnavailable:
            pass  # it runs out by itself

    def items(self, path: str) -> list[Object]:
        """Return the objects of a list. Raises ConfigError, StageUnavailable."""
        status, found = self.ask("GET", path)
        return list(_checked(status, found, path.rsplit("/", 1)[-1]).get("items") or [])

    # --- the API ------------------------------------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> tuple[int, Object]:
        """Return status and body of a request. Raises StageUnavailable where nothing answers."""
        from urllib3.exceptions import HTTPError

        headers = {"Content-Type": kind, "Accept": "application/json"}
        request = self._api.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = self._api.rest_client.request(*request[:4], _request_timeout=_TIMEOUT_SECONDS)
            text = answer.read()
        except (HTTPError, OSError) as error:
            raise StageUnavailable(f"The Kubernetes API does not answer ({type(error).__name__}).") from None
        try:
            found = json.loads(text)
        except ValueError:
            found = {}
        return int(answer.status), found if isinstance(found, dict) else {}


def _checked(status: int, found: Object, what: str) -> Object:
    """Return what was answered. Raises ConfigError where it may not be had, StageUnavailable for other faults."""
    if status in (401, 403):
        raise ConfigError(f"This account may not touch {what}: {found.get('message', status)}")
    if status in (400, 422):
        raise ConfigError(f"The Kubernetes API refuses {what}: {found.get('message', status)}")
    if status >= 300:
        raise StageUnavailable(f"The Kubernetes API answered {status} when asked for {what}.")
    return found


def serve_config(service: Object) -> dict[str, Any]:
    """Return a RayService's Serve configuration. Raises ConfigError."""
    try:
        found = yaml.safe_load((service.get("spec") or {}).get("serveConfigV2") or "")
    except yaml.YAMLError as error:
        raise ConfigError(f"The RayService's serveConfigV2 is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("The RayService has no serveConfigV2: is it one of Baton's?")
    return found


def _state(service: Object) -> State | None:
    text = (service["metadata"].get("annotations") or {}).get(ANNOTATION)
    if not text:
        return None
    try:
        raw = json.loads(text)
    except ValueError:
        raise ConfigError(f"The annotation {ANNOTATION} is no JSON: remove it to begin anew.") from None
    return State.parse(raw, f"the annotation {ANNOTATION}")


def _remaining(lease: Object) -> float:
    """Return for how many seconds a Lease still holds."""
    spec = lease.get("spec") or {}
    try:
        renewed = datetime.strptime(str(spec.get("renewTime")), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    left = renewed.timestamp() + float(spec.get("leaseDurationSeconds") or _LEASE_SECONDS) - time.time()
    return min(left, _LEASE_SECONDS)
