"""A model named by a hub id: its download shows, its failure is told in Serve's status, and the engine then serves it.

The engine runs with ``model_impl: transformers``, vLLM's fallback for architectures that it has no code of its own for.
"""

import os
from pathlib import Path

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
    raw["models"][0]["options"] = {"max_constructor_retry_count": 1}
    raw["pipeline"]["models"] = {"fake": {**raw["pipeline"]["models"]["fake"], "application": APPLICATION}}
    cluster.cluster._put(serve_config(LocalConfig.parse(raw, "test")))


def status(cluster):
    return cluster.cluster.statuses().get(APPLICATION, {})


def logged(cluster):
    """Return what the engine's replicas have logged."""
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp/ray")) / "session_latest" / "logs" / "serve"
    return "".join(path.read_text() for path in folder.glob(f"replica_{APPLICATION}_*.log"))


@pytest.mark.timeout(600)
def test_a_download_shows_its_failure_its_progress_and_its_end(cluster, hub):
    deploy(cluster, "otter/none")
    Baton.wait_for(lambda: status(cluster).get("status") == "DEPLOY_FAILED", 240, "the download to fail")
    told = status(cluster)["deployments"]["generator"]["message"]
    sentence = (
        f"The model 'otter/none' cannot be fetched: {hub.url} has no such model, or it is private: correct the id"
    )
    assert sentence in told.strip().splitlines()[-1]

    hub.flowing.clear()
    deploy(cluster, MODEL)

    def progress():
        return cluster.http.get("/readyz").json()

    Baton.wait_for(lambda: "is downloaded" in str(progress()), 240, "the progress of the download")
    assert f"fake is downloaded: {MODEL}: " in str(progress())
    hub.flowing.set()
    Baton.wait_for(lambda: cluster.http.get("/readyz").status_code == 200, 300, "the engine")

    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
    reply = cluster.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens"] > 0
    assert reply.json()["choices"][0]["message"]["content"].strip()

    (snapshot,) = (cluster.data / "hub" / "models--otter--smollm2" / "snapshots").iterdir()
    assert verify(snapshot) == []
    assert "files are there and have the hub's checksums" in logged(cluster)
