"""A model named by a hub id: its download shows, its failure is told in Serve's status, and the engine then serves it.

The engine runs with ``model_impl: transformers``, vLLM's fallback for architectures that it has no code of its own for.
"""

from pathlib import Path

import httpx
import pytest

from app.config.local import LocalConfig, serve_config
from app.delivery.manifest import verify
from app.testing.hub import FakeHub
from tests.app.baton import Baton
from tests.app.fake_cluster import configuration, running

MODEL = "otter/smollm2"
APPLICATION = "model-hub"


@pytest.fixture(scope="module")
def hub(models):
    folder = models / "smollm2"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    with FakeHub({MODEL: files}) as served:
        yield served


@pytest.fixture(scope="module")
def cluster(hub, models, tmp_path_factory):
    data = tmp_path_factory.mktemp("delivery")
    (data / "models").symlink_to(models)
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(data / "hub"), "HF_HUB_OFFLINE": "0"}
    with running(data, environment) as found:
        yield found


def deploy(cluster, source):
    """Put the pipeline with one engine, whose model has this id."""
    raw = configuration(cluster.data).model_dump(by_alias=True, mode="json")
    engine = {
        "model_loading_config": {"model_id": "fake", "model_source": source},
        "accelerator_type": None,
        "placement_group_config": {"bundles": [{"CPU": 1}]},
        "engine_kwargs": {
            "model_impl": "transformers",
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 1024,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 256,
        },
        "experimental_configs": {"stream_batching_interval_ms": 0},
    }
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "TORCHDYNAMO_DISABLE": "1"}
    raw["models"] = [{"application": APPLICATION, "engine": engine, "env": environment}]
    raw["pipeline"]["models"] = {"fake": {**raw["pipeline"]["models"]["fake"], "application": APPLICATION}}
    cluster.cluster._put(serve_config(LocalConfig.parse(raw, "test")))


def status(cluster):
    return cluster.cluster.statuses().get(APPLICATION, {})


def readiness(cluster):
    """Return what the gateway says is missing; nothing while it starts itself."""
    try:
        return cluster.http.get("/readyz").text
    except httpx.TransportError:
        return ""


def message(cluster):
    return status(cluster).get("deployments", {}).get("generator", {}).get("message", "")


def logged(cluster):
    """Return what the engine's replica has logged."""
    (replica,) = status(cluster)["deployments"]["generator"]["replicas"]
    (file,) = Path("/tmp/ray").glob(f"session_2*/logs{replica['log_file_path']}")  # not `session_latest`
    return file.read_text()


@pytest.mark.timeout(600)
def test_a_download_shows_its_failure_its_progress_and_its_end(cluster, hub):
    deploy(cluster, "otter/none")
    sentence = f"The model 'otter/none' cannot be fetched: {hub.url} has no such model, or it is private"
    Baton.wait_for(lambda: sentence in message(cluster), 240, "the failure in the status")
    assert sentence in message(cluster).strip().splitlines()[-1]
    Baton.wait_for(lambda: sentence in readiness(cluster), 60, "the failure in /readyz")

    hub.flowing.clear()
    deploy(cluster, MODEL)

    Baton.wait_for(lambda: f"fake is downloaded: {MODEL}: " in readiness(cluster), 240, "the download's progress")
    hub.flowing.set()
    Baton.wait_for(lambda: cluster.http.get("/readyz").status_code == 200, 300, "the engine")

    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
    reply = cluster.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens"] > 0
    assert reply.json()["choices"][0]["message"]["content"].strip()

    # The engine got a folder: after its files the hub was asked for nothing more.
    assert "/resolve/" in hub.requests[-1]
    (snapshot,) = (cluster.data / "hub" / "models--otter--smollm2" / "snapshots").iterdir()
    assert verify(snapshot) == []
    assert "files are there and have the hub's checksums" in logged(cluster)
