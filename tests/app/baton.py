"""A running Baton as tests see it: started with the command that users type, asked over HTTP, stopped with Ctrl-C."""

import copy
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import httpx
import yaml

from app.config.local import ROOT, LocalConfig
from app.ops.local_cluster import LocalCluster

LOCAL = ROOT / "config" / "local.yaml"
START_SECONDS = 600  # four processes import the engine one after another; on two busy cores that takes minutes
MODEL = "smollm2"
FIRST_PORT = int(os.environ.get("BATON_TEST_PORT", "18000"))  # another one for a second run beside the first
#: Ray hands metrics on every ten seconds by default, for which every test that reads them would wait. It drops a gauge
#: that was not set for two of these, and sets those of nodes every five seconds.
QUICK_METRICS = {"RAY_metrics_report_interval_ms": "4000"}


class Caller:
    """Somebody who asks a gateway at ``base``."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.http = httpx.Client(base_url=base, timeout=120)

    def chat(self, content="hi", **body) -> httpx.Response:
        """Ask without retrieval unless the body says otherwise."""
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.http.post(
            "/v1/chat/completions", json={"model": MODEL, "max_tokens": 8, "messages": messages} | body
        )

    def open_stream(self, body: dict):
        """Return a raw connection and its response, for tests that hang up."""
        address = urllib.parse.urlsplit(self.base)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()


class Baton(Caller):
    """One running pipeline."""

    def __init__(self, data: Path, port: int = FIRST_PORT) -> None:
        self.data = data
        self.port, self.metrics_port, self.dashboard_port = port, port + 1464, port + 265
        super().__init__(f"http://127.0.0.1:{self.port}")
        self.metrics = f"http://127.0.0.1:{self.metrics_port}/metrics"
        self.output: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, config: Path = LOCAL) -> None:
        """Start and wait for the line that says it is ready."""
        command = [sys.executable, "-m", "app.ops.run", "--config", str(config), "--data", str(self.data)]
        command += ["--port", str(self.port), "--metrics-port", str(self.metrics_port)]
        command += ["--dashboard-port", str(self.dashboard_port)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | QUICK_METRICS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for(lambda: "Baton is ready" in self.said or self.process.poll() is not None, START_SECONDS, "start")
        assert self.process.poll() is None, self.said

    def _read(self) -> None:
        for line in self.process.stdout:
            self.output.append(line)

    @property
    def said(self) -> str:
        """All that was printed so far."""
        return "".join(self.output)

    @property
    def logs(self) -> Path:
        """The folder of this Ray session's logs: its name ends with the process that began it, whose id may return."""
        found = Path("/tmp/ray").glob(f"session_*_{self.process.pid}")
        return max(found, key=lambda folder: folder.stat().st_mtime) / "logs"

    def stop(self) -> int:
        """Send Ctrl-C and return the exit code."""
        self.http.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(timeout=120)
        self._reader.join(timeout=30)
        self.process.stdout.close()
        return code

    # --- configuration ------------------------------------------------------------------------------------------------

    def config(self, change=None) -> LocalConfig:
        """Return the shipped configuration, changed by ``change(raw)``."""
        raw = yaml.safe_load(LOCAL.read_text().replace("{data}", str(self.data)).replace("{root}", str(ROOT)))
        if change is not None:
            raw = copy.deepcopy(raw)
            change(raw)
        config = LocalConfig.parse(raw, "local")
        ports = {"port": self.port, "metrics_port": self.metrics_port, "dashboard_port": self.dashboard_port}
        return config.model_copy(update={"machine": config.machine.model_copy(update=ports)})

    def deploy(self, change=None) -> None:
        """Deploy the shipped configuration with a change, and wait until it is in force."""
        cluster = LocalCluster(self.config(change), self.data)
        cluster.deploy()
        time.sleep(1)
        cluster.wait_until_running(lambda text: None, threading.Event())
        self.wait_for(lambda: self.http.get("/readyz").status_code == 200, 120, "readyz")

    # --- metrics ------------------------------------------------------------------------------------------------------

    def scrape(self, name: str, *labels: str) -> float:
        """Return the sum over all rows of a metric whose labels hold each of ``labels``."""
        text = httpx.get(self.metrics, timeout=20).text
        rows = re.findall(rf"^{name}(\{{[^}}]*\}})? ([0-9.e+-]+)$", text, re.M)
        return sum(float(value) for found, value in rows if all(label in found for label in labels))

    @staticmethod
    def wait_for(condition, seconds: float, what: str) -> None:
        """Poll until ``condition()`` holds; fail with ``what`` when time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.25)
        raise AssertionError(f"timed out after {seconds} s: {what}")


def events(body: bytes) -> list[bytes]:
    """Return the data of each server-sent event; events end at blank lines and nowhere else."""
    frames = [frame for frame in body.replace(b"\r\n", b"\n").split(b"\n\n") if frame.strip()]
    return [frame.removeprefix(b"data:").strip() for frame in frames if frame.startswith(b"data:")]
