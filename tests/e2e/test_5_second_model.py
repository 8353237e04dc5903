"""A second model comes beside the first, which notices nothing, and goes again."""

import yaml

from tests.e2e.kube import cluster_name, wait_for
from tests.e2e.release import SHAPE, Callers


def with_twin():
    values = yaml.safe_load(SHAPE.read_text())
    twin = values["models"]["smollm2"]
    twin["engine"]["model_loading_config"]["model_id"] = "twin"
    return {"models": {"twin": twin}}


def test_a_second_model_does_not_touch_the_first(release):
    before = (cluster_name(), release.replicas("model-smollm2"))
    with Callers(lambda: release.chat("Say hello."), pause=1.0) as callers:
        release.upgrade(with_twin(), wait=False)
        wait_for("the second model", lambda: release.chat("Say hello.", model="twin").status_code == 200, 900, every=3)
    assert release.applications()["model-twin"]["status"] == "RUNNING"
    assert (cluster_name(), release.replicas("model-smollm2")) == before
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])

    release.upgrade(wait=False)
    wait_for("the second model gone", lambda: "model-twin" not in release.applications(), 300)
    wait_for("the first alone", lambda: release.chat("Say hello.").status_code == 200, 300)
    assert release.replicas("model-smollm2") == before[1]
    assert release.chat("Say hello.", model="twin").status_code == 404
    release.wait()
