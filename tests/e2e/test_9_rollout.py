"""A canary goes its way as a Job of the chart: promoted, and rolled back on a made fault, while people ask.

Prometheus is that of the stories before this one, made anew.
"""

import json

import yaml

from tests.e2e.kube import PODS, cluster_name, get, kubectl, ray_service, wait_for
from tests.e2e.release import Callers
from tests.e2e.test_8_monitoring import prometheus, query

__all__ = ["prometheus"]  # the fixture

URL = "http://prometheus-operated.monitoring:9090"
ROLLOUT = 900
#: Answers that take many times as long: the made fault.
SLOW = {"nCandidates": 4, "sampling": {"temperature": 0.7, "maxTokens": 128}}
SHORT = {"sampling": {"temperature": 0, "maxTokens": 2}}


def plan(name, *gates):
    return {
        "name": name,
        "profile": "plain",
        "stable": "current",
        "canary": "candidate",
        "steps": [{"share": 25, "seconds": 30}, {"share": 50, "seconds": 30}],
        "gates": [{"gate": "errors", "bound": 0.05, "minRequests": 5}, *gates],
        "windowSeconds": 90,
        "pollSeconds": 5,
        "holdSeconds": 300,
    }


def values(wanted=None, **candidate):
    """Return values with two variants of the profile `plain`, and a rollout between them."""
    variants = {"current": {"weight": 1, **SHORT}, "candidate": {"weight": 0, **SHORT, **candidate}}
    found = {"observability": {"interval": "5s"}, "settings": {"routing": {"plain": {"variants": variants}}}}
    if wanted:
        found["rollout"] = {"enabled": True, "plan": wanted, "prometheusUrl": URL}
    return found


def ask(release):
    body = {"model": "plain", "messages": [{"role": "user", "content": "Tell a long story."}]}
    return release.http.post("/v1/chat/completions", json=body)


def answering(release):
    """Return the variant that answers."""
    answer = ask(release)
    return answer.status_code == 200 and answer.json()["baton"]["variant"].get("name")


def record():
    """Return what the rollout remembers."""
    text = ray_service()["metadata"].get("annotations", {}).get("baton/rollout")
    return json.loads(text) if text else {}


def weights():
    """Return the weights that the RayService holds."""
    config = yaml.safe_load(ray_service()["spec"]["serveConfigV2"])
    (pipeline,) = [found for found in config["applications"] if found["name"] == "pipeline"]
    (gateway,) = [found for found in pipeline["deployments"] if found["name"] == "gateway"]
    variants = gateway["user_config"]["routing"]["plain"]["variants"]
    return {name: found["weight"] for name, found in variants.items()}


def over(name):
    """Return how the rollout of this name ended; None while it has not."""
    found = record()
    return found.get("phase") if found.get("name") == name and found.get("phase") != "running" else None


def events(reason):
    """Return the messages of Events of the RayService."""
    found = get("events", "--field-selector", f"reason={reason},involvedObject.kind=RayService")["items"]
    return [event["message"] for event in found]


def job_state():
    """Return the conditions of the rollout's Job that hold."""
    (job,) = [job for job in get("jobs")["items"] if "-rollout-" in job["metadata"]["name"]]
    return {entry["type"] for entry in job["status"].get("conditions", []) if entry["status"] == "True"}


def test_a_good_canary_is_promoted(prometheus, release):
    before = (cluster_name(), release.replicas()["pipeline/gateway"])
    with Callers(lambda: ask(release), count=2) as callers:
        release.upgrade(values(plan("good")), wait=False)
        assert wait_for("the end of the rollout", lambda: over("good"), ROLLOUT, every=3) == "promoted", record()
        wait_for("the canary alone", lambda: answering(release) == "candidate", PODS)
        assert query(prometheus, 'ray_baton_requests_total{profile="plain",variant="candidate"}')
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    assert weights() == {"current": 0, "candidate": 1}
    assert len(events("CanaryStep")) == 2
    assert events("CanaryPromoted") == ["candidate has all the traffic of plain"]
    wait_for("a Job that is complete", lambda: "Complete" in job_state(), PODS)
    assert "candidate" in kubectl("logs", "-l", "app.kubernetes.io/component=rollout", "--tail=-1")
    assert (cluster_name(), release.replicas()["pipeline/gateway"]) == before


def test_a_bad_canary_is_rolled_back(prometheus, release):
    slow = {"gate": "latencyP95", "bound": 4, "relative": True, "minRequests": 5}
    release.upgrade(values(**SLOW), wait=False)  # puts the weights back, too
    wait_for("the stable variant alone", lambda: answering(release) == "current", PODS)
    with Callers(lambda: ask(release), count=2) as callers:
        release.upgrade(values(plan("bad", slow), **SLOW), wait=False)
        assert wait_for("the end of the rollout", lambda: over("bad"), ROLLOUT, every=3) == "rolledBack", record()
        wait_for("the stable variant alone", lambda: answering(release) == "current", PODS)
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    assert weights() == {"current": 1, "candidate": 0}
    assert "latencyP95 is broken" in events("CanaryRolledBack")[-1]
    wait_for("a Job that failed", lambda: "Failed" in job_state(), PODS)
    release.upgrade({"observability": {"interval": "5s"}}, wait=False)
    wait_for("no variants", lambda: answering(release) is None, PODS)
