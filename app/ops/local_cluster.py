"""A Ray cluster of our own on this machine, driven through Serve's REST API."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from app.arena import remove_orphans
from app.config.environment import COMMON
from app.config.local import ROOT, LocalConfig, serve_config
from app.deployments import shared_memory
from app.errors import ConfigError, StageUnavailable
from app.ops.api_key import key_headers
from app.ops.ray_sessions import RaySessions
from app.ops.stopping import until_stopped

_POLL_SECONDS = 0.5
_WATCH_SECONDS = 5.0
_SILENCES = 6
#: How long Serve may take to stop in order, and then Ray's processes to end, before they are killed.
_SERVE_STOP_SECONDS = 10.0
_RAY_STOP_SECONDS = 3.0

#: Environment of every Ray process. Set before Ray is imported: most of it is read at import.
ENVIRONMENT = {
    **COMMON,
    # Nothing is fetched from a model hub.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # Two cores: a library that starts a thread per core and process would only get in the others' way.
    "OMP_NUM_THREADS": "1",
    # Ray runs its workers at niceness 15: any other program on the machine would come before every answer.
    "RAY_worker_niceness": "0",
}


class LocalCluster:
    """Starts Ray, deploys the configuration, waits, stops."""

    def __init__(self, config: LocalConfig, data: Path) -> None:
        self._config = config
        self._data = data
        self._said: dict[str, str] = {}
        self._ailing: set[str] = set()
        self._sessions = RaySessions()
        self._began: float | None = None
        self.broken_off = False
        """Whether the start of Ray was interrupted, so that this process cannot use Ray any more."""

    @property
    def url(self) -> str:
        """Base URL of the gateway."""
        return f"http://{self._config.machine.host}:{self._config.machine.port}"

    @property
    def _applications(self) -> str:
        machine = self._config.machine
        return f"http://{machine.host}:{machine.dashboard_port}/api/serve/applications/"

    def start(self) -> None:
        """Start the cluster in this process's care."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Workers import `app` from here, wherever the caller stands.
        places = (str(ROOT / "app" / "ops" / "python_start"), str(ROOT), os.environ.get("PYTHONPATH", ""))
        os.environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
        import ray

        self._began = time.time()
        try:
            with self._sessions.around_start():
                self._init(ray)
        except KeyboardInterrupt:
            self.broken_off = True
            raise
        except Exception as error:
            raise StageUnavailable(f"Ray did not start ({type(error).__name__}): {error}") from error

    def _init(self, ray: Any) -> None:
        machine = self._config.machine
        ray.init(
            address="local",
            num_cpus=machine.logical_cpus,
            object_store_memory=machine.object_store_bytes,
            include_dashboard=True,
            dashboard_host=machine.host,
            dashboard_port=machine.dashboard_port,
            _metrics_export_port=machine.metrics_port,
            log_to_driver=False,
            # Of this process alone, which people read.
            logging_config=ray.LoggingConfig(encoding="TEXT", log_level="WARNING"),
        )

    def deploy(self) -> None:
        """Send the Serve configuration. The answer 200 proves nothing: wait for the status."""
        self._put(serve_config(self._config))

    def deploy_engines_first(self, say: Callable[[str], None], stop: threading.Event) -> None:
        """Send the models' applications and, once their replicas start, all of them.

        An engine's start is the longest chain of work; on two cores it must not wait for the others' imports.
        """
        whole = serve_config(self._config)
        end = self._end()
        models = [application for application in whole["applications"] if application["route_prefix"] is None]
        self._put(whole | {"applications": models}, stop)
        while time.monotonic() < end:
            found = self.statuses(stop)
            self._tell(found, say)
            if stop.is_set() or all(_has_replica(found.get(application["name"], {})) for application in models):
                break
            stop.wait(_POLL_SECONDS)
        if not stop.is_set():
            self._put(whole, stop)

    def _end(self) -> float:
        return time.monotonic() + self._config.machine.start_timeout_seconds

    def _put(self, configuration: dict[str, Any], stop: threading.Event | None = None) -> None:
        def put() -> httpx.Response:
            return httpx.put(self._applications, json=configuration, timeout=120)

        try:
            answer = until_stopped(put, stop) if stop else put()
        except httpx.HTTPError as error:
            raise StageUnavailable(f"Serve did not take the configuration ({type(error).__name__}).") from None
        if answer is not None and answer.status_code != 200:
            raise ConfigError(f"Serve refused the configuration: {answer.text[:500]}")

    def statuses(self, stop: threading.Event | None = None) -> dict[str, dict[str, Any]]:
        """Return Serve's view of each application; nothing while Serve does not answer, or once ``stop`` is set."""
        if stop is not None:
            return until_stopped(self.statuses, stop) or {}
        applications: dict[str, dict[str, Any]] = self._view().get("applications", {})
        return applications

    def check_port(self) -> None:
        """Refuse a gateway's port other than the one that Serve listens at, which it keeps until it is restarted."""
        machine, view = self._config.machine, self._view()
        port = view.get("http_options", {}).get("port", machine.port)
        if port != machine.port:
            raise ConfigError(
                f"The gateway of the running Baton listens at port {port} and keeps it, and machine.port is "
                f"{machine.port}: pass --port {port}, or start Baton anew to change it."
            )
        grpc = view.get("grpc_options") or {}
        served = grpc.get("port") if grpc.get("grpc_servicer_functions") else None
        if view and served != machine.grpc_port:
            raise ConfigError(
                f"The running Baton serves gRPC {f'at port {served}' if served else 'nowhere'} and keeps to that: "
                f"{f'pass --grpc-port {served}' if served else 'leave machine.grpcPort out'}, or start Baton anew."
            )

    def _view(self) -> dict[str, Any]:
        """Return what Serve tells of itself; nothing where it does not answer, or something else does."""
        try:
            return _json_object(httpx.get(self._applications, timeout=30))
        except httpx.HTTPError:
            return {}

    def collections(self) -> list[str] | None:
        """Return the names of the collections that the gateway knows; None while it does not answer."""
        try:
            answer = _json_object(httpx.get(f"{self.url}/v1/collections", headers=key_headers(), timeout=10))
        except httpx.HTTPError:
            return None
        return [found["name"] for found in answer["data"]] if "data" in answer else None

    def watch(self, say: Callable[[str], None], stop: threading.Event) -> None:
        """Tell changes of status until asked to stop. Raises :class:`StageUnavailable` when the cluster is gone."""
        silent = 0
        while not stop.wait(_WATCH_SECONDS):
            found = self.statuses(stop)
            if stop.is_set():
                return
            silent = 0 if found else silent + 1
            if silent == _SILENCES:
                raise StageUnavailable("The Ray cluster does not answer any more; its logs are under /tmp/ray.")
            self._tell(found, say, fatal=False)  # what served before goes on serving

    def wait_until_running(self, say: Callable[[str], None], stop: threading.Event, only: str | None = None) -> None:
        """Wait for all applications (or the one called ``only``), telling each change of status.

        Raises :class:`ConfigError` with Serve's message when one fails, :class:`StageUnavailable` when time is up.
        """
        wanted = {only} if only else {application["name"] for application in serve_config(self._config)["applications"]}
        end = self._end()
        while not stop.is_set():
            found = self.statuses(stop)
            self._tell(found, say)
            if all(found.get(name, {}).get("status") == "RUNNING" for name in wanted):
                return
            if time.monotonic() > end:
                raise StageUnavailable(f"The applications {sorted(wanted)} did not start in time.")
            stop.wait(_POLL_SECONDS)

    def settle(self, say: Callable[[str], None]) -> None:
        """Wait until what was sent serves: Serve takes a moment to begin with it."""
        time.sleep(_POLL_SECONDS)
        self.wait_until_running(say, threading.Event())

    def _tell(self, found: dict[str, dict[str, Any]], say: Callable[[str], None], *, fatal: bool = True) -> None:
        for name, application in found.items():
            status = application["status"]
            if status == "DEPLOY_FAILED" and fatal:
                raise ConfigError(f"The application {name} did not start: {_reason(application)}")
            if self._said.get(name) != status:
                self._said[name] = status
                say(f"application {name}: {self._news(name, application)}")

    def _news(self, name: str, application: dict[str, Any]) -> str:
        """Return the status, why where it is a bad one, and whether a bad one is over."""
        status = str(application["status"])
        if status == "DEPLOY_FAILED":
            return f"{status.lower()}: {_reason(application)}"
        if status == "UNHEALTHY":
            self._ailing.add(name)
            return f"{status.lower()}: {_ailment(application)}"
        if status == "RUNNING" and name in self._ailing:
            self._ailing.remove(name)
            return f"{status.lower()}, healthy again"
        return status.lower()

    def stop(self) -> None:
        """Stop Serve, then Ray; engines get the time to remove what they keep in shared memory.

        Takes about 20 s at most: what does not stop in order is killed, and what it leaves in shared memory removed.
        """
        if self._began is None:
            return
        try:
            if not self.broken_off:
                self._stop_in_order()
        finally:
            self._sessions.end(0.0 if self.broken_off else _RAY_STOP_SECONDS)
            remove_orphans()  # shared memory of replicas that had to be killed
            shared_memory.remove_orphans(self._began, patience=shared_memory.YOUNG_SECONDS + 1)

    def _stop_in_order(self) -> None:
        import ray
        from ray import serve

        if ray.is_initialized():
            logging.getLogger("ray.serve").setLevel(logging.WARNING)  # where nothing runs yet it says so
            with suppress(Exception):  # half started, it may refuse; what follows ends it all the same
                until_stopped(serve.shutdown, threading.Event(), _SERVE_STOP_SECONDS)
            ray.shutdown()

    def kill(self) -> None:
        """Kill every process of the cluster, now."""
        self._sessions.kill()


def _json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the object that was answered; an empty one for anything else. Raises httpx's error for a bad status."""
    answer.raise_for_status()
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _has_replica(application: dict[str, Any]) -> bool:
    deployments = (application.get("deployments") or {}).values()
    return any(deployment.get("replicas") for deployment in deployments)


def _reason(application: dict[str, Any]) -> str:
    """Return the last line of the most specific message that Serve has: a deployment's, else the application's."""
    messages = [deployment.get("message") for deployment in (application.get("deployments") or {}).values()]
    text = next((message for message in messages if message), application.get("message") or "no reason given")
    lines = _lines(text)
    telling = [line for line in lines if "Error" in line]
    return (telling or lines or ["no reason given"])[-1][:500]


def _ailment(application: dict[str, Any]) -> str:
    """Return the first line of what Serve says of each deployment that is not healthy, else of the application."""
    deployments = (application.get("deployments") or {}).items()
    messages = {f"{name}: ": found.get("message") for name, found in deployments if found.get("status") == "UNHEALTHY"}
    told = [label + lines[0] for label, text in messages.items() if (lines := _lines(text))]
    return "; ".join(told or _lines(application.get("message"))[:1] or ["no reason given"])[:500]


def _lines(text: Any) -> list[str]:
    return [line.strip() for line in str(text or "").splitlines() if line.strip()]
