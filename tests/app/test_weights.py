"""Shared weights on Ray: replicas in processes of their own map one copy, follow updates, and outlive the store."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from app.config.embedder import EmbedderConfig
from app.embedders.factory import build_embedder
from app.errors import Conflict
from app.ops.local_cluster import ENVIRONMENT
from app.weights.store import publish
from app.weights.tensors import take_apart
from tests.app.weight_replicas import Replica, make


@pytest.fixture(scope="module")
def ray():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.getcwd())
        import ray

        ray.init(
            address="local",
            num_cpus=4,
            object_store_memory=200 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
        yield ray
        ray.shutdown()


@pytest.fixture
def store(ray):
    from app.deployments.weight_store import RayStore

    return RayStore()


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.1)


def test_replicas_map_one_copy_follow_updates_and_outlive_publisher_and_store(ray, store):
    actor = ray.remote(Replica).options(num_cpus=0)
    first, second = (actor.remote("one", 1.0) for _ in range(2))
    assert ray.get([first.ask.remote(), second.ask.remote()]) == [(1, [1.0])] * 2
    assert all("plasma" in path for path in ray.get([first.mapping.remote(), second.mapping.remote()]))

    publisher = actor.remote("two", 2.0)
    assert ray.get(publisher.ask.remote()) == (2, [2.0])
    ray.kill(publisher)
    until(lambda: ray.get([first.ask.remote(), second.ask.remote()]) == [(2, [2.0])] * 2)
    assert ray.get(actor.remote("two", 0.0).ask.remote()) == (2, [2.0]), "the bytes went with their publisher"

    model = make(2.0)
    model[1].bias.data.fill_(3.0)
    published = publish(store, "tiny", "three", take_apart(model))
    assert published.shipped == ("1.bias",)
    until(lambda: ray.get(first.ask.remote()) == (3, [2.0, 3.0]))
    with pytest.raises(Conflict):
        store.commit(replace(published.snapshot, digest="other"))

    ray.kill(store._keeper)
    assert ray.get([first.ask.remote(), second.ask.remote()])[0] == (3, [2.0, 3.0])
    until(lambda: _starts_anew(ray, actor))
    until(lambda: ray.get(first.ask.remote()) == (1, [5.0]))


def _starts_anew(ray, actor):
    try:
        return ray.get(actor.remote("three", 5.0).ask.remote()) == (1, [5.0])
    except ray.exceptions.RayError:  # the name of the killed actor is still taken
        return False


def test_the_embedder_gives_the_same_vectors_from_shared_weights(models):
    vectors = []
    for shared in (False, True, True):
        embedder = build_embedder(EmbedderConfig(source=str(models / "e5-small"), shared_weights=shared))
        embedder.start()
        vectors.append(embedder.encode(["How do I scale the generator?", "如何扩展"], "query").vectors)
        embedder.close()
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[1], vectors[2])
