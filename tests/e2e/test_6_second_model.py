"""A second model comes beside the first, which notices nothing, sleeps while nobody asks (case C10), and goes again.

So does one whose folder is not there (case C14): that is said, and what serves goes on.
"""

import time

import yaml

from tests.e2e.kube import PODS, START, cluster_name, pods, wait_for
from tests.e2e.release import SHAPE, Callers

GROUP = "idle-workers"
ALONE = {"model-smollm2": "RUNNING", "pipeline": "RUNNING"}


def with_twin():
    """Return values with a second model, which may sleep; only pods of the group that may go to zero can run it."""
    twin = yaml.safe_load(SHAPE.read_text())["models"]["smollm2"]
    twin["engine"]["model_loading_config"]["model_id"] = "twin"
    twin["engine"]["placement_group_config"] = {"bundles": [{"CPU": 1, "idle": 1}]}
    twin["options"]["autoscaling_config"] |= {
        "min_replicas": 0,
        "initial_replicas": 0,
        "look_back_period_s": 12,
        "downscale_delay_s": 10,
        "downscale_to_zero_delay_s": 20,
    }
    return {"models": {"twin": twin}}


def ask_twin(release, **body):
    return release.chat("Say hello.", model="twin", **body)


def sleeps(release):
    return not pods(group=GROUP) and release.replicas()["model-twin/generator"] == []


def statuses(release):
    return {name: state["status"] for name, state in release.applications().items()}


def test_a_second_model_does_not_touch_the_first(release):
    before = (cluster_name(), release.replicas("model-smollm2"))
    with Callers(lambda: release.chat("Say hello."), pause=1.0) as callers:
        release.upgrade(with_twin())
        wait_for("the second model", lambda: ask_twin(release, timeout_seconds=120).status_code == 200, START, every=3)
        assert len(pods(group=GROUP)) == 1
    assert (cluster_name(), release.replicas("model-smollm2")) == before
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])


def test_a_model_that_nobody_asks_sleeps_and_wakes(release):
    wait_for("the model and its pod gone", lambda: sleeps(release), PODS)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        assert release.http.get("/readyz").status_code == 200
        assert release.http.get("/healthz").status_code == 200
        assert sleeps(release), "a probe woke the model"
        time.sleep(1)

    began = time.monotonic()
    first = ask_twin(release, timeout_seconds=5)
    assert time.monotonic() - began < 15
    assert (first.status_code, first.json()["error"]["code"]) == (503, "stage_unavailable")
    assert int(first.headers["Retry-After"]) > 0
    wait_for("the model awake", lambda: ask_twin(release, timeout_seconds=120).status_code == 200, START, every=3)


def test_the_second_model_goes_again(release):
    before = release.replicas("model-smollm2")
    release.upgrade(wait=False)
    wait_for("the second model gone", lambda: "model-twin" not in release.applications(), PODS)
    wait_for("the first alone", lambda: release.chat("Say hello.").status_code == 200, PODS)
    assert release.replicas("model-smollm2") == before
    assert ask_twin(release).status_code == 404
    wait_for("its pod gone", lambda: not pods(group=GROUP), PODS)
    release.wait()


def test_a_model_whose_folder_is_missing_says_so_and_harms_nobody(release):
    before = (cluster_name(), release.replicas())
    broken = yaml.safe_load(SHAPE.read_text())["models"]["smollm2"]
    broken["engine"]["model_loading_config"] = {"model_id": "broken", "model_source": "/opt/baton/models/nowhere"}

    def failed():
        state = release.applications().get("model-broken", {})
        return state.get("status") == "DEPLOY_FAILED" and str(state)

    with Callers(lambda: release.chat("Say hello."), pause=1.0) as callers:
        release.upgrade({"models": {"broken": broken}}, wait=False)
        said = wait_for("a failure that is told", failed, PODS)
        assert "/opt/baton/models/nowhere" in said
        release.upgrade(wait=False)
        wait_for("the broken model gone", lambda: statuses(release) == ALONE, START)
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    after = release.replicas()
    assert (cluster_name(), after["model-smollm2/generator"]) == (before[0], before[1]["model-smollm2/generator"])
