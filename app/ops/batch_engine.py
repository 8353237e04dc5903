"""A Baton of a batch's own: every application of a configuration, started for the run and stopped after it.

From a local configuration (``config/local.yaml``) it is a Ray cluster on this machine, on free ports. From a Serve
configuration it is the Ray cluster that this process is a job of (a RayJob's): its dashboard takes the applications.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from app.config.local import LocalConfig, MachineConfig, load
from app.errors import ConfigError, StageUnavailable
from app.ingestion.targets import wait_until_ready
from app.ops import preflight
from app.ops.run import prepare_models, prepared_models

_DASHBOARD = "http://127.0.0.1:8265/api/serve/applications/"
_GATEWAY = "http://127.0.0.1:8000"
_POLL_SECONDS = 2.0


@contextlib.contextmanager
def own_baton(config: Path, data: Path, seconds: int) -> Iterator[str]:
    """Yield the address of a gateway that serves this run alone. Raises ConfigError and StageUnavailable.

    ``seconds`` is how long it may take to start. SIGTERM stops it in order, as Ctrl-C does.
    """
    applications = _serve_configuration(config)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        starting = _on_this_machine(config, data) if applications is None else _in_this_cluster(applications, seconds)
        with starting as url:
            wait_until_ready(url, seconds)
            yield url
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve_configuration(path: Path) -> dict[str, Any] | None:
    """Return a file's Serve configuration, to the letter; None where it is none."""
    with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        found = yaml.safe_load(path.read_text("utf-8"))
        # A local configuration has `applications` as well, as a mapping.
        return found if isinstance(found, dict) and isinstance(found.get("applications"), list) else None
    return None


def own_config(path: Path, data: Path) -> LocalConfig:
    """Return a local configuration for a Baton beside the one that serves by it. Raises ConfigError.

    Its ports are free ones, and the batches of the API stay with the other Baton's gateways.
    """
    config = load(path, data)
    ports = dict(zip(("port", "metrics_port", "dashboard_port"), _free_ports(), strict=True))
    machine = MachineConfig.parse(config.machine.model_dump() | ports | {"grpc_port": None}, "machine")
    batches = config.settings.batches.model_copy(update={"folder": ""})
    settings = config.settings.model_copy(update={"batches": batches})
    return config.model_copy(update={"machine": machine, "settings": settings})


@contextlib.contextmanager
def _on_this_machine(path: Path, data: Path) -> Iterator[str]:
    from app.ops.local_cluster import LocalCluster

    data = data.resolve()
    config = own_config(path, data)
    preflight.check_files(config, prepared_models(data))
    prepare_models(data, _say)
    cluster = LocalCluster(config, data)
    stop = threading.Event()
    try:
        cluster.start()
        cluster.deploy_engines_first(_say, stop)
        cluster.wait_until_running(_say, stop)
        yield cluster.url
    finally:
        cluster.stop()


@contextlib.contextmanager
def _in_this_cluster(raw: Mapping[str, Any], seconds: int) -> Iterator[str]:
    try:
        answer = httpx.put(_DASHBOARD, json=raw, timeout=120)
        if answer.status_code != httpx.codes.OK:
            raise ConfigError(f"Serve refused the configuration: {answer.text[:500]}")
        _wait_until_running({found["name"] for found in raw["applications"]}, seconds)
        yield _GATEWAY
    except httpx.HTTPError as error:
        raise StageUnavailable(
            f"No Ray cluster answers at {_DASHBOARD} ({type(error).__name__}): a Serve configuration is for a job "
            "within one; elsewhere give a local configuration like config/local.yaml."
        ) from None
    finally:
        with contextlib.suppress(httpx.HTTPError):
            httpx.delete(_DASHBOARD, timeout=60)


def _wait_until_running(wanted: set[str], seconds: int) -> None:
    """Wait for applications. Raises ConfigError where one fails and StageUnavailable when the time is up."""
    end = time.monotonic() + seconds
    while True:
        found: dict[str, dict[str, Any]] = httpx.get(_DASHBOARD, timeout=30).json().get("applications", {})
        states = {name: found.get(name, {}).get("status") for name in wanted}
        failed = next((name for name, state in states.items() if state == "DEPLOY_FAILED"), None)
        if failed is not None:
            raise ConfigError(f"The application {failed} did not start: {str(found[failed].get('message'))[:500]}")
        if set(states.values()) == {"RUNNING"}:
            return
        if time.monotonic() > end:
            raise StageUnavailable(f"The applications did not start within {seconds} s: {states}")
        time.sleep(_POLL_SECONDS)


def _free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [int(found.getsockname()[1]) for found in sockets]


def _say(text: str) -> None:
    print(f"batch: {text}", file=sys.stderr, flush=True)
