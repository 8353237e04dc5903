"""The release under test: how it is installed, asked and looked into."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import httpx
import yaml

from scripts.helm_render import merged
from tests.e2e.kube import (
    CHART,
    CLUSTER,
    GONE,
    NAMESPACE,
    RELEASE,
    ROOT,
    START,
    Forward,
    cluster_name,
    helm,
    pods,
    run,
    wait_for,
)

SHAPE = CHART / "ci" / "cpu-values.yaml"
OVERLAY = ROOT / "tests" / "e2e" / "values.yaml"


class Release:
    """An installed release, with ways in."""

    def __init__(self, folder):
        self._folder = folder
        self._forwards = []
        self.gateway = self.dashboard = None
        self.http = None

    def remove_another(self):
        """Remove a release with other values: a second Ray cluster beside its own would not fit on a small node."""
        wanted = merged(yaml.safe_load(SHAPE.read_text()), yaml.safe_load(OVERLAY.read_text()))
        found = helm("get", "values", RELEASE, "-o", "json", check=False)
        if found.returncode == 0 and json.loads(found.stdout) != wanted:
            helm("uninstall", RELEASE, "--wait", "--timeout", "5m", seconds=360)
            wait_for("a cluster without pods", lambda: not pods(), GONE)

    def upgrade(self, changes=None, wait=True):
        """Install, or upgrade with values over the shape's and the overlay's."""
        files = ["-f", str(SHAPE), "-f", str(OVERLAY)]
        if changes:
            path = self._folder / "changes.yaml"
            path.write_text(yaml.safe_dump(changes))
            files += ["-f", str(path)]
        helm("upgrade", "--install", RELEASE, CHART, *files)
        if wait:
            self.wait()

    def wait(self):
        """Wait until it serves and its collections are indexed, with the script that users see."""
        command = ["env", f"CLUSTER={CLUSTER}", f"BATON_WAIT_SECONDS={START}"]
        print(run(*command, "scripts/cluster_wait.sh", NAMESPACE, RELEASE, seconds=START + 60))

    def open(self):
        """Open the ways in."""
        self.gateway = Forward(f"{RELEASE}-serve-svc", 8000)
        self.dashboard = Forward(f"{cluster_name()}-head-svc", 8265)
        self._forwards = [self.gateway, self.dashboard]
        self.http = httpx.Client(base_url=self.gateway.url, timeout=180)

    def close(self):
        """Close them."""
        if self.http:
            self.http.close()
        for forward in self._forwards:
            forward.close()

    def chat(self, content, **body):
        """Ask; without retrieval unless the body says otherwise."""
        whole = {"model": "plain", "max_tokens": 8, "messages": [{"role": "user", "content": content}]} | body
        return self.http.post("/v1/chat/completions", json=whole)

    def applications(self):
        """Return Serve's view of the applications."""
        answer = httpx.get(f"{self.dashboard.url}/api/serve/applications/", timeout=60)
        answer.raise_for_status()
        return answer.json()["applications"]

    def replicas(self, application=None):
        """Return ``application/deployment → ids`` of the replicas that run."""
        found = {}
        for name, state in self.applications().items():
            for deployment, details in state["deployments"].items():
                running = [entry["replica_id"] for entry in details["replicas"] if entry["state"] == "RUNNING"]
                found[f"{name}/{deployment}"] = sorted(running)
        return {key: ids for key, ids in found.items() if application is None or key.startswith(f"{application}/")}


class Callers:
    """People who ask all the time, and what they got: ``statuses`` counts status codes and broken connections."""

    def __init__(self, ask, count=1, pause=0.2):
        self.statuses = Counter()
        self.bodies = []
        self._ask = ask
        self._pause = pause
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go, daemon=True) for _ in range(count)]

    def _go(self):
        while not self._stop.is_set():
            try:
                answer = self._ask()
                self.statuses[answer.status_code] += 1
                if answer.status_code != 200:
                    self.bodies.append(answer.text[:300])
            except httpx.HTTPError as error:
                self.statuses[type(error).__name__] += 1
            self._stop.wait(self._pause)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=200)


def python(*arguments, **options):
    """Run this environment's Python at the root of the repository."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options)


def since(began):
    """Return the seconds since a moment of ``time.monotonic``."""
    return time.monotonic() - began
