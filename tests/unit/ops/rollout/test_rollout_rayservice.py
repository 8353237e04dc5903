"""The RayService as a target: what a write changes, who comes in between, the Lease, Events."""

import copy
import json
from datetime import UTC, datetime, timedelta

import pytest

from app.errors import ConfigError, StageUnavailable
from app.ops.kube_client import api_client
from app.ops.rollout.machine import Seen, advance, begin, rolled_back
from app.ops.rollout.rayservice import KubernetesTarget
from app.ops.rollout.target import Held, Stale
from tests.unit.ops.doctor.conftest import write_kubeconfig
from tests.unit.ops.rollout.fakes import blue_green, plan
from tests.unit.ops.rollout.sites import SERVICE, running, serve_config

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/baton-rollout"
EVENTS = "/api/v1/namespaces/ns/events"


def begun(target, wanted=None, now=1000.0, **options):
    wanted = wanted or plan()
    snapshot = target.read(wanted)
    return snapshot, begin(wanted, snapshot.settings, now, identity="i1", **options)


def moved(state):
    """Return the state at the first step."""
    return advance(plan(), state, Seen(), 2000.0)


def test_a_write_changes_the_weights_and_the_record_and_nothing_else(target, kube):
    before = copy.deepcopy(kube.service)
    snapshot, state = begun(target)
    target.write(snapshot, state)
    assert kube.service["spec"] == before["spec"], "the first record moves no weight"
    target.write(target.read(plan()), moved(state))
    assert kube.weights == {"old": 0.9, "new": 0.1}
    wanted = serve_config(weights=(0.9, 0.1))
    assert kube.config == wanted
    assert kube.service["spec"]["rayVersion"] == "2.60.0"
    assert kube.service["metadata"]["annotations"]["kept"] == "yes"
    assert target.state() == moved(state)


def test_what_was_changed_meanwhile_is_not_overwritten(target, kube):
    snapshot, state = begun(target)
    kube.before_write = lambda: kube.change(serve_config(weights=(0.2, 0.8)))
    with pytest.raises(Stale):
        target.write(snapshot, moved(state))
    assert kube.weights == {"old": 0.2, "new": 0.8}
    assert target.state() is None


def test_replicas_change_with_the_weights(target, kube):
    wanted = blue_green()
    snapshot, state = begun(target, wanted, sizes=(1, 2))
    target.write(snapshot, state)
    (a, b, _) = kube.config["applications"]
    assert a["deployments"][0]["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 1, "initial_replicas": 1}
    assert b["deployments"][0]["autoscaling_config"] == {"min_replicas": 2, "max_replicas": 2, "initial_replicas": 2}
    target.write(target.read(wanted), rolled_back(state, "bad", 1100.0))
    assert kube.config == serve_config()


def test_a_fixed_number_of_replicas_stays_one(target, kube):
    config = serve_config(scaling={"num_replicas": 3, "autoscaling_config": None})
    kube.change(config)
    snapshot, state = begun(target, blue_green(), sizes=(3, 1))
    assert snapshot.settings.replicas["model-a"] == {"num_replicas": 3}
    target.write(snapshot, state)
    assert kube.config["applications"][1]["deployments"][0]["num_replicas"] == 1


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        (running("pipeline", "model-a", "model-b"), {}),
        (running("pipeline", "model-a", model_b=("DEPLOYING", "UPDATING")), {"model-b": "deploying"}),
        (running("pipeline", "model-a", model_b=("RUNNING", "UPSCALING")), {}),
        (running("pipeline", "model-b", model_a=("DEPLOY_FAILED", "UNHEALTHY")), {}),
        (running("model-b"), {"pipeline": "not there"}),
    ],
)
def test_what_does_not_run_is_told(target, kube, statuses, told):
    kube.service["status"]["activeServiceStatus"]["applicationStatuses"] = statuses
    assert target.read(plan()).applications == told


def test_replicas_that_the_rollout_sets_are_waited_for(target, kube):
    statuses = running("pipeline", "model-a", model_b=("RUNNING", "UPSCALING"))
    kube.service["status"]["activeServiceStatus"]["applicationStatuses"] = statuses
    assert target.read(blue_green()).applications == {"model-b": "upscaling"}


def test_plans_that_do_not_fit_are_refused_with_what_is_there(target, kube):
    with pytest.raises(ConfigError, match=r"settings\.routing has no profile 'other'"):
        target.read(plan(profile="other"))
    with pytest.raises(ConfigError, match=r"variants has no 'newer' \(it has new, old\)"):
        target.read(plan(canary="newer"))
    with pytest.raises(ConfigError, match="no application 'model-c'"):
        target.read(blue_green(new="model-c"))
    with pytest.raises(ConfigError, match="no RayService other in the namespace ns"):
        KubernetesTarget(target._api, "ns", "other").read(plan())
    kube.service["metadata"]["annotations"]["baton/rollout"] = "{"
    with pytest.raises(ConfigError, match="annotation baton/rollout is no JSON"):
        target.read(plan())
    kube.service["metadata"]["annotations"]["baton/rollout"] = '{"id": 3}'
    with pytest.raises(ConfigError, match=r"annotation baton/rollout\.id"):
        target.read(plan())
    kube.service["spec"]["serveConfigV2"] = "3"
    with pytest.raises(ConfigError, match="no serveConfigV2"):
        target.read(plan())


def test_what_the_account_may_not_do_is_said(target, kube):
    kube.refuse["PATCH", SERVICE] = 403
    with pytest.raises(ConfigError, match="may not touch a change of the RayService baton"):
        target.write(*begun(target))
    kube.refuse["PATCH", SERVICE] = 422
    with pytest.raises(ConfigError, match="refuses a change"):
        target.write(*begun(target))
    kube.refuse["PATCH", SERVICE] = 500
    with pytest.raises(StageUnavailable, match="answered 500"):
        target.write(*begun(target))


def test_lines_of_the_history_become_events_once(target, kube):
    _, state = begun(target)
    ended = rolled_back(state, "bad", 1100.0)
    for entry in (*ended.log, *ended.log):
        target.announce(ended, entry)
    assert [(event["reason"], event["type"]) for event in kube.events] == [
        ("CanaryStarted", "Normal"),
        ("CanaryRolledBack", "Warning"),
    ]
    assert kube.events[0]["involvedObject"]["uid"] == "u-1"
    kube.refuse["POST", EVENTS] = 500
    with pytest.raises(StageUnavailable):
        target.announce(ended, ended.log[0])


def test_the_lease_is_taken_renewed_and_given_back(target, kube):
    with target.lock():
        holder = kube.objects[LEASE]["spec"]["holderIdentity"]
        assert holder
        target.renew()
        assert kube.objects[LEASE]["spec"]["holderIdentity"] == holder
    assert kube.objects[LEASE]["spec"]["holderIdentity"] == ""
    with target.lock():
        pass


def lease(kube, holder, age=0.0):
    renewed = datetime.now(UTC) - timedelta(seconds=age)
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 60,
        "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    kube.put(LEASE, {"metadata": {"name": "baton-rollout"}, "spec": spec})


def test_a_second_runner_is_refused(target, kube):
    lease(kube, "pod-1")
    with pytest.raises(Held, match="Another runner, pod-1, has the rollout of baton"), target.lock():
        pass
    assert 50 < target.slept[0] < 62


def test_a_dead_runners_lease_is_waited_for(target, kube):
    lease(kube, "pod-1")
    target._sleep = lambda seconds: lease(kube, "pod-1", age=61)
    with target.lock():
        assert kube.objects[LEASE]["spec"]["holderIdentity"] != "pod-1"


def test_a_runner_that_lost_its_lease_ends(target, kube):
    with target.lock():
        lease(kube, "pod-2")
        with pytest.raises(Held, match="pod-2, took over"):
            target.renew()
    assert kube.objects[LEASE]["spec"]["holderIdentity"] == "pod-2"


def test_a_record_stays_small(target, kube):
    snapshot, state = begun(target)
    for number in range(500):
        state = state.told("CanaryHeld", "x" * 5000, float(number))
    target.write(snapshot, state)
    assert len(kube.service["metadata"]["annotations"]["baton/rollout"]) < 64_000
    assert target.state().log[-1].number == 501


def test_no_api_is_said(kube, tmp_path):
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    with pytest.raises(StageUnavailable, match="Kubernetes API does not answer"):
        KubernetesTarget(api_client(), "ns", "baton").read(plan())


def test_a_record_is_json_that_people_can_read(target, kube):
    target.write(*begun(target))
    found = json.loads(kube.service["metadata"]["annotations"]["baton/rollout"])
    assert (found["phase"], found["stage"], found["log"][0]["reason"]) == ("running", 0, "CanaryStarted")
