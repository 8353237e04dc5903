"""A cluster of its own over the shipped fake engine and embedder: fast answers, and replicas that a test may kill."""

import contextlib
import os
import signal
import threading
import warnings

import httpx
import pytest
import yaml

from app.config.local import ROOT, LocalConfig, serve_config
from app.ops.local_cluster import ENVIRONMENT, LocalCluster
from tests.app.baton import FIRST_PORT, LOCAL, QUICK_METRICS, Baton

PORT = FIRST_PORT + 380
STAGES = ("guardrail", "retriever", "assembler", "postprocessor")
SMALL = {"ray_actor_options": {"num_cpus": 0.1}}
DOCUMENTS = [{"id": f"note-{number}", "text": f"Note {number} is about zebras."} for number in range(20)]


def configuration(data, change=None):
    """The shipped pipeline over fakes; every stage has two replicas in a deployment of its own."""
    raw = yaml.safe_load(LOCAL.read_text().replace("{data}", str(data)).replace("{root}", str(ROOT)))
    raw["machine"] = {"port": PORT, "metricsPort": PORT + 1, "dashboardPort": PORT + 2}
    raw["models"] = [{"application": "model-fake", "engine": {}}]
    raw["pipeline"]["models"] = {"fake": {"application": "model-fake", "tokenizer": str(data / "models" / "smollm2")}}
    raw["pipeline"]["embedder"] = {"kind": "fake", "dimension": 64}
    pair = {"placement": "deployment", "options": {"num_replicas": 2, **SMALL}}
    raw["pipeline"]["stages"] = {"gateway": {"options": SMALL}} | dict.fromkeys(STAGES, pair)
    raw["settings"]["profiles"] = {"default": {"model": "fake"}}
    raw["settings"].pop("priorities")
    raw["collections"] = {}
    if change is not None:
        change(raw)
    return LocalConfig.parse(raw, "test")


class FakeCluster:
    """The running cluster. ``http`` asks its gateway."""

    def __init__(self, cluster, data):
        self.cluster = cluster
        self.data = data
        self.http = httpx.Client(base_url=cluster.url, timeout=60)

    def deploy(self, engine, change=None):
        """Deploy the configuration with a change over an engine with these arguments, and wait until it answers."""
        whole = serve_config(configuration(self.data, change))
        whole["applications"][0] |= {"import_path": "app.testing.engine:build_fake_model", "args": engine}
        self.cluster._put(whole)
        self.cluster.settle(lambda text: None)
        short = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        Baton.wait_for(lambda: self.http.post("/v1/chat/completions", json=short).is_success, 120, "an answer")

    def index(self, collection):
        """Store the documents."""
        reply = self.http.post(f"/v1/collections/{collection}/documents", json={"documents": DOCUMENTS})
        assert reply.is_success, reply.text

    def pids(self, deployment, application="pipeline"):
        """Process ids of the replicas that run."""
        found = self.cluster.statuses()[application]["deployments"][deployment]["replicas"]
        return [replica["pid"] for replica in found if replica["state"] == "RUNNING"]

    def wait_for_two(self, deployment, application="pipeline"):
        """Wait until a deployment has two replicas."""
        Baton.wait_for(lambda: len(self.pids(deployment, application)) == 2, 60, f"two replicas of the {deployment}")

    def kill_one(self, deployment, application="pipeline"):
        """Kill one replica of a deployment."""
        os.kill(self.pids(deployment, application)[0], signal.SIGKILL)


@contextlib.contextmanager
def running(data, environment=None):
    """Start the cluster without applications; stop it at the end."""
    cluster = LocalCluster(configuration(data), data)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, **QUICK_METRICS, "PYTHONPATH": str(ROOT), **(environment or {})}.items():
            patch.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own import
            import ray.serve  # noqa: F401
        cluster.start()
        found = FakeCluster(cluster, data)
        try:
            yield found
        finally:
            found.http.close()
            cluster.stop()


def flood(callers, seconds, ask):
    """Call ``ask(number)`` again and again from so many threads; raise what any of them raised."""
    stop, failures = threading.Event(), []

    def work(number):
        try:
            while not stop.is_set():
                ask(number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join(timeout=90)
    if failures:
        raise failures[0]
