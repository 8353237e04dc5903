"""Runs the whole pipeline on this machine: ``python -m app.ops.run`` (what ``make run`` calls).

Prepares the models, starts a Ray cluster of its own, deploys the Serve configuration over the same REST call that a
cluster's operator uses, indexes the sample collections through the gateway, asks one question to warm up, and stops
everything on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from app.config.local import ROOT, LocalConfig, MachineConfig, load
from app.config.serve import PIPELINE
from app.errors import BatonError, ConfigError
from app.ops import config_checks, preflight
from app.ops.arguments import port
from app.ops.local_cluster import LocalCluster
from app.ops.stopping import Signals, until_stopped
from app.ops.warm_up import warm_up

_PORTS = ("port", "grpc_port", "metrics_port", "dashboard_port")


class Progress:
    """Prints what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._start:6.1f} s] {text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C or SIGTERM; return the exit code: 0 stopped as asked, 1 failed, 2 refused to start."""
    options = parser("Run the whole pipeline on this machine.").parse_args(arguments)
    progress = Progress()
    signals = Signals(threading.Event(), lambda: progress.say("stopping"))
    signals.catch()
    with ExitStack() as held:
        try:
            config = _checked(options, held)
        except ConfigError as error:
            print(f"baton: {error}", file=sys.stderr)
            return 2
        return _run(config, options, progress, signals)


def _checked(options: argparse.Namespace, held: ExitStack) -> LocalConfig:
    """Return the configuration, one that can start here, and hold its folder. Raises :class:`ConfigError`."""
    config = read_config(options)
    preflight.check(config.machine, options.data)
    preflight.check_collections(config.collections)
    preflight.check_files(config, prepared_models(options.data))
    config_checks.check_config(config)
    config_checks.check_own_key(config)
    held.enter_context(preflight.held(options.data))
    return config


def _run(config: LocalConfig, options: argparse.Namespace, progress: Progress, signals: Signals) -> int:
    """Run until somebody asks to stop; return the exit code."""
    known = config_checks.collections_on_disk(config.pipeline.store)
    for line in () if known is None else config_checks.missing_collections(config, known):
        progress.say(line)
    cluster = LocalCluster(config, options.data)
    signals.last = cluster.kill
    try:
        _serve(cluster, config, options, progress, signals)
    except BatonError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    progress.say("stopped")
    if cluster.broken_off:
        os._exit(0)  # what Ray does at an ordinary exit would wait for processes that are gone
    return 0


def parser(description: str) -> argparse.ArgumentParser:
    """Return the options that say which configuration is meant, and which ports."""
    found = argparse.ArgumentParser(prog="baton", description=description)
    found.add_argument("--config", type=Path, default=ROOT / "config" / "local.yaml", help="what to run")
    found.add_argument("--data", type=Path, default=ROOT / ".baton", help="folder of models and index")
    for name in _PORTS:
        found.add_argument(f"--{name.replace('_', '-')}", type=port, help=f"overrides machine.{name}")
    return found


def read_config(options: argparse.Namespace) -> LocalConfig:
    """Return the configuration that the options name. Raises :class:`ConfigError`."""
    options.data = options.data.resolve()
    config = load(options.config, options.data)
    given = {name: getattr(options, name) for name in _PORTS if getattr(options, name) is not None}
    machine = MachineConfig.parse(config.machine.model_dump() | given, "machine")
    return config.model_copy(update={"machine": machine})


def _serve(
    cluster: LocalCluster, config: LocalConfig, options: argparse.Namespace, progress: Progress, signals: Signals
) -> None:
    """Start, serve and stop. Raises :class:`BatonError` for what went wrong before anybody asked to stop."""
    stop = signals.stop
    try:
        until_stopped(lambda: prepare_models(options.data, progress.say), stop)
        if not stop.is_set():
            progress.say("starting Ray")
            with signals.breaking():
                cluster.start()
            signals.catch()
            _deploy(cluster, config, progress, stop)
        cluster.watch(progress.say, stop)
    except KeyboardInterrupt:
        pass  # of Ray's start
    except BatonError:
        if not stop.is_set():
            raise
    finally:
        cluster.stop()


def _deploy(cluster: LocalCluster, config: LocalConfig, progress: Progress, stop: threading.Event) -> None:
    cluster.deploy_engines_first(progress.say, stop)
    _index(cluster, config, progress, stop)
    cluster.wait_until_running(progress.say, stop)
    if not stop.is_set():
        warm_up(cluster.url, progress.say, stop)
    if not stop.is_set():
        _announce(config, progress)


def prepared_models(data: Path) -> tuple[Path, Path]:
    """Return the folders of the chat model and the embedder that a start prepares."""
    return data / "models" / "smollm2", data / "models" / "e5-small"


def prepare_models(data: Path, say: Callable[[str], None]) -> None:
    """Make these folders; ones that are there already take no time."""
    from app.ops.models import prepare_chat_model, prepare_embedder

    say(f"preparing the models under {data / 'models'}")
    chat_model, embedder = prepared_models(data)
    prepare_chat_model(chat_model)
    prepare_embedder(embedder)


def _index(cluster: LocalCluster, config: LocalConfig, progress: Progress, stop: threading.Event) -> None:
    from app.ops import ingest

    cluster.wait_until_running(progress.say, stop, only=PIPELINE)
    for name, path in config.collections.items():
        if stop.is_set():
            return
        progress.say(f"indexing {path}")
        arguments = ["--url", cluster.url, "--collection", name, str(ROOT / path)]
        if until_stopped(partial(ingest.main, arguments, stop), stop) != 0:
            raise ConfigError(f"The collection {name} could not be indexed from {path}; the lines above say why.")


def _announce(config: LocalConfig, progress: Progress) -> None:
    machine = config.machine
    base = f"http://{machine.host}:{machine.port}"
    body = '{"messages": [{"role": "user", "content": "What does the guardrail do?"}]}'
    progress.say(f"Baton is ready: {base}/ (web page), {base}/v1 (OpenAI API), {base}/docs")
    print(f"  try      curl {base}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    for name in config.applications.enabled():
        print(f"  also     {base}/{name}")
    if machine.grpc_port is not None:
        print(f"  gRPC     {machine.host}:{machine.grpc_port} (app/protos/baton.proto)")
    print(f"  metrics  http://{machine.host}:{machine.metrics_port}/metrics (for Prometheus)")
    print("  stop     Ctrl-C", flush=True)


if __name__ == "__main__":
    sys.exit(main())
