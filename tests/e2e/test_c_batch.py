"""A batch runs as a Job of the chart: its pod is killed in the middle, and the output is complete all the same."""

import json

import pytest

from tests.e2e.kube import GONE, PODS, RELEASE, get, helm, kubectl, ray_service, wait_for
from tests.e2e.release import Callers, Release
from tests.e2e.test_9_uninstall import left

ROWS = 60
CLAIM = "batches"
BATCH = {
    "input": "/batch/in.jsonl",
    "output": "/batch/out.jsonl",
    "volume": {"persistentVolumeClaim": {"claimName": CLAIM}},
    "concurrency": 4,
    "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
}
RUN = 1200


def claim():
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec}


def desk():
    """A pod beside the release that holds the claim open, to write its input and to read its output."""
    head = ray_service()["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
    container = {
        "name": "desk",
        "image": head["containers"][0]["image"],
        "imagePullPolicy": head["containers"][0]["imagePullPolicy"],
        "command": ["sleep", "7200"],
        "securityContext": head["containers"][0]["securityContext"],
        "volumeMounts": [{"name": "batch", "mountPath": "/batch"}],
    }
    spec = {
        "containers": [container],
        "securityContext": head["securityContext"],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "batch", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "desk"}, "spec": spec}


def rows():
    lines = [
        {"custom_id": f"q{number}", "prompt": f"Tell me of {number}.", "profile": "plain"} for number in range(ROWS)
    ]
    return "".join(json.dumps(line | {"max_tokens": 16}) + "\n" for line in lines) + "{broken\n"


def done_rows():
    said = kubectl("exec", "desk", "--", "sh", "-c", "wc -l < /batch/out.jsonl.progress/done.jsonl", check=False)
    return int(said.stdout) if said.returncode == 0 else 0


def job():
    (found,) = [found for found in get("jobs")["items"] if "-batch-nightly-" in found["metadata"]["name"]]
    return found


def complete():
    conditions = job().get("status", {}).get("conditions", [])
    assert not [entry for entry in conditions if entry["type"] == "Failed" and entry["status"] == "True"]
    return [entry for entry in conditions if entry["type"] == "Complete" and entry["status"] == "True"]


@pytest.fixture
def installed(cluster, client_secret, tmp_path):
    """A release of its own, with a claim and a desk beside it."""
    release = Release(tmp_path)
    try:
        release.upgrade()
        release.open()
        for made in (claim(), desk()):
            kubectl("apply", "-f", "-", text=json.dumps(made))
        kubectl("wait", "pod/desk", "--for=condition=Ready", f"--timeout={PODS}s", seconds=PODS + 30)
        yield release
    finally:
        release.close()
        kubectl("delete", "pod/desk", f"pvc/{CLAIM}", "--ignore-not-found", "--wait=false")
        helm("uninstall", RELEASE, "--wait", "--timeout", "5m", seconds=360)
    wait_for("an empty namespace", lambda: not left(), GONE, every=3)


@pytest.mark.timeout(3600)
def test_a_batch_survives_its_pod_and_others_are_answered_meanwhile(installed):
    kubectl("exec", "-i", "desk", "--", "sh", "-c", "cat > /batch/in.jsonl", text=rows())
    with Callers(lambda: installed.chat("Say hello."), pause=2) as callers:
        installed.upgrade({"batch": {"nightly": BATCH}}, wait=False)
        wait_for("a third of the rows", lambda: done_rows() >= ROWS // 3, RUN)
        kubectl("delete", "pod", "-l", "app.kubernetes.io/component=batch", "--grace-period=0", "--force")
        wait_for("a Job that is complete", complete, RUN, every=3)
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    found = [json.loads(line) for line in kubectl("exec", "desk", "--", "cat", "/batch/out.jsonl").splitlines()]
    assert [row["custom_id"] for row in found] == [*(f"q{number}" for number in range(ROWS)), f"row-{ROWS}"]
    assert [row["error"] is None for row in found] == [True] * ROWS + [False]
    log = kubectl("exec", "desk", "--", "cat", "/batch/out.jsonl.progress/done.jsonl").splitlines()
    assert len(log) == ROWS + 1
