"""What the benches of streams run on: Baton, the stock ingress and bare servers side by side, one asked at a time."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvloop

from app.config.local import LocalConfig, serve_config
from app.config.yaml_file import read_yaml
from app.ops.local_cluster import ENVIRONMENT, LocalCluster
from tests.bench.measure import ROOT, cpu_seconds
from tests.bench.sse_load import Answer, Client

PORT, METRICS_PORT, DASHBOARD_PORT, BARE_PORT, VLLM_PORT, HAPROXY_PORT = 22000, 22001, 22002, 22010, 22020, 22100
LOCAL = ROOT / "config" / "local.yaml"
CHAT = "/v1/chat/completions"
_START_SECONDS = 240
_UNGUARDED = {"injection": {"enabled": False}, "controlTokens": {"enabled": False}}


@dataclass(frozen=True)
class Side:
    """One contestant: where it answers, and which of the processes are its own (``engine`` or not)."""

    name: str
    port: int
    path: str
    model: str
    front: tuple[str, ...] = ()
    engine: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """What one load of streams showed. CPU is in seconds, of the front's and of the engine's processes.

    ``tokens`` are those that the engine made; the guardrail may put several into one event.
    """

    answers: list[Answer]
    tokens: int
    seconds: float
    front_cpu: float
    engine_cpu: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def cpu_microseconds(self) -> float:
        """CPU time of all processes per token."""
        return (self.front_cpu + self.engine_cpu) / self.tokens * 1e6

    @property
    def front_microseconds(self) -> float:
        """CPU time per token of all processes but the engine's."""
        return self.front_cpu / self.tokens * 1e6


class Site:
    """The servers under test and the client's event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._clients: dict[tuple[int, str], Client] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._cluster: LocalCluster | None = None

    # --- start and stop -----------------------------------------------------------------------------------------------

    def spawn(self, command: list[str], environment: Mapping[str, str] | None = None) -> int:
        """Start a server; returns its process id."""
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / f"{len(self._children)}.log").open("wb"),
            start_new_session=True,
        )
        self._children.append(child)
        return child.pid

    def deploy(self, config: LocalConfig, applications: list[dict[str, Any]]) -> None:
        """Start Ray and send the configuration's pipeline with these applications beside it."""
        self._cluster = LocalCluster(config, self._folder)
        self._cluster.start()
        self.send(config, applications)

    def send(self, config: LocalConfig, applications: list[dict[str, Any]]) -> None:
        """Send a configuration to the cluster that runs."""
        whole = serve_config(config)
        names = {application["name"] for application in applications}
        whole["applications"] = applications + [one for one in whole["applications"] if one["name"] not in names]
        self._names = [one["name"] for one in whole["applications"]]
        self._config = config
        url = f"http://127.0.0.1:{DASHBOARD_PORT}/api/serve/applications/"
        httpx.put(url, json=whole, timeout=120).raise_for_status()

    def wait(self) -> None:
        """Wait until every application runs and every child listens."""
        end = time.monotonic() + _START_SECONDS
        while True:
            found = self._cluster.statuses() if self._cluster else {}
            states = {name: found.get(name, {}).get("status") for name in self._names}
            if set(states.values()) == {"RUNNING"}:
                return
            if "DEPLOY_FAILED" in states.values() or time.monotonic() > end:
                raise RuntimeError(f"not running: {states} {[one.get('message', '')[-600:] for one in found.values()]}")
            time.sleep(0.3)

    def wait_for_port(self, port: int, path: str) -> None:
        """Wait until a server answers; raises with what it printed when a child has ended."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            for number, child in enumerate(self._children):
                if child.poll() is not None:
                    raise RuntimeError(f"a server ended: {(self._folder / f'{number}.log').read_text()[-600:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("POST", path, "{}", {"Content-Type": "application/json"})
                connection.getresponse()
                return
            time.sleep(0.3)
        raise RuntimeError(f"nothing answers on port {port}")

    def close(self) -> None:
        """Stop everything that was started."""
        for client in self._clients.values():
            client.close()
        self._runner.close()
        try:
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(20)
        finally:
            if self._cluster is not None:
                self._cluster.stop()

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, side: Side, streams: int, tokens: int, keep: bool = False, pause: float = 0.0) -> Load:
        """Ask for ``streams`` answers of exactly ``tokens`` tokens at once, after a pause."""
        time.sleep(pause)
        client = self._clients.setdefault((side.port, side.path), Client(side.port, side.path))
        body = question(side, tokens)
        pids = processes()
        front, engine = pids.of(side.front), pids.of(side.engine)
        before = cpu_seconds(front), cpu_seconds(engine)
        start = time.perf_counter()
        answers = self._runner.run(client.ask(streams, body, keep))
        seconds = time.perf_counter() - start
        return Load(answers, streams * tokens, seconds, cpu_seconds(front) - before[0], cpu_seconds(engine) - before[1])


def question(side: Side, tokens: int) -> dict[str, Any]:
    """Return the body that every side gets."""
    messages = [{"role": "user", "content": "Tell me what you know about zebras and about lions."}]
    body = {"model": side.model, "messages": messages, "stream": True, "max_tokens": tokens, "ignore_eos": True}
    return body | {"temperature": 0}


class Processes:
    """The descendants of this process by their command lines."""

    def __init__(self, commands: Mapping[int, str]) -> None:
        self._commands = commands

    def of(self, marks: tuple[str, ...]) -> list[int]:
        """Return those whose command line holds one of the marks; a number stands for a process and its children."""
        return [pid for pid, command in self._commands.items() if any(mark in command for mark in marks)]


def processes() -> Processes:
    """Return the descendants of this process; a child's command line follows its parents', so marks cover children."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    lines: dict[int, str] = {os.getpid(): ""}
    pending = [os.getpid()]
    while pending:
        parent = pending.pop()
        for pid in [pid for pid, above in parents.items() if above == parent]:
            with contextlib.suppress(OSError):
                own = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                lines[pid] = f"{lines[parent]}|pid={pid}|{own}"
                pending.append(pid)
    del lines[os.getpid()]
    return Processes(lines)


def local_config(data: Path, change: Any) -> LocalConfig:
    """Return the shipped configuration on the bench's ports, changed by ``change(raw)``."""
    raw = read_yaml(LOCAL, {"data": str(data), "root": str(ROOT)})
    raw["machine"] |= {"port": PORT, "metricsPort": METRICS_PORT, "dashboardPort": DASHBOARD_PORT}
    raw["settings"]["guardrail"]["policies"]["unguarded"] = _UNGUARDED
    raw["collections"] = {}
    change(raw)
    return LocalConfig.parse(raw, "bench")


def add_fake_model(raw: dict[str, Any], data: Path) -> None:
    """Serve the fake engine as model ``fake``, guarded by default and without a guardrail as profile ``unguarded``."""
    options = {"num_replicas": 1, "max_ongoing_requests": 256}
    raw["models"].append({"application": "model-fake", "engine": {}, "options": options})
    raw["pipeline"]["models"]["fake"] = {"application": "model-fake", "tokenizer": str(data / "models" / "smollm2")}
    raw["settings"]["profiles"]["guarded"] = {"model": "fake"}
    raw["settings"]["profiles"]["unguarded"] = {"model": "fake", "policy": "unguarded"}


def fake_only(data: Path) -> Any:
    """Return a change of the configuration: only the fake engine, and no embedding model."""

    def change(raw: dict[str, Any]) -> None:
        raw["models"], raw["pipeline"]["models"] = [], {}
        raw["settings"]["profiles"] = {}
        raw["settings"]["defaultProfile"] = "guarded"
        raw["pipeline"]["embedder"] = {"kind": "fake", "dimension": 64}
        add_fake_model(raw, data)

    return change


def fake_application(seconds_per_token: float, words: Sequence[str]) -> dict[str, Any]:
    """Return Serve's application of the fake engine."""
    return {
        "name": "model-fake",
        "import_path": "app.testing.engine:build_fake_model",
        "route_prefix": None,
        "args": {"seconds_per_token": seconds_per_token, "words": list(words)},
        "deployments": [{"name": "generator", "max_ongoing_requests": 256}],
    }


def baton_side(name: str = "Baton", model: str = "guarded", application: str = "fake") -> Side:
    """Return Baton's side over one model application."""
    front = ("ray::ServeReplica:pipeline", "ray::ProxyActor")
    return Side(name, PORT, CHAT, model, front, (f"ray::ServeReplica:model-{application}",))


@contextlib.contextmanager
def site() -> Iterator[tuple[Site, Path]]:
    """Yield the site and the folder of its models and index; everything is stopped in the end."""
    from app.ops.models import prepare_chat_model

    models = ROOT / ".baton" / "models"
    prepare_chat_model(models / "smollm2")
    folder = Path(tempfile.mkdtemp(prefix="baton-bench-"))
    (folder / "models").symlink_to(models)
    found = Site(folder)
    try:
        yield found, folder
    finally:
        found.close()
        shutil.rmtree(folder, ignore_errors=True)
