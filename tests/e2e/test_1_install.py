"""Install: the release comes up under the `restricted` level, and what is asked of the cluster is there."""

import json

import pytest

from tests.e2e.kube import CONTEXT, NAMESPACE, RELEASE, cluster_name, get, is_ready, kubectl, pods, restarts
from tests.e2e.release import OVERLAY, SHAPE, python

pytestmark = pytest.mark.core


def test_the_release_serves(release):
    assert is_ready()
    assert restarts() == 0
    assert {pod["status"]["phase"] for pod in pods()} == {"Running"}
    assert {name: state["status"] for name, state in release.applications().items()} == {
        "model-smollm2": "RUNNING",
        "pipeline": "RUNNING",
    }
    assert release.http.get("/readyz").status_code == 200


def test_every_pod_is_restricted(release):
    labels = get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    warned = [event["message"] for event in get("events")["items"] if "violates PodSecurity" in event["message"]]
    assert warned == []
    for pod in pods():
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"], container["name"]


def test_the_same_values_again_change_nothing(release):
    before = (cluster_name(), release.replicas(), [pod["metadata"]["uid"] for pod in pods()])
    release.upgrade()
    assert (cluster_name(), release.replicas(), [pod["metadata"]["uid"] for pod in pods()]) == before


def test_the_doctor_finds_no_fault(release):
    arguments = ["--values", SHAPE, "--values", OVERLAY, "--namespace", NAMESPACE, "--release", RELEASE]
    done = python("-m", "app.ops.doctor", *map(str, arguments), "--context", CONTEXT, "--json", timeout=120)
    findings = json.loads(done.stdout)["findings"]
    assert [entry for entry in findings if entry["level"] == "fault"] == []
    assert done.returncode == 0
    assert any(entry["topic"] == "operator" and "runs" in entry["text"] for entry in findings)


def test_the_image_has_no_compiler_and_runs_as_nobody_special(release):
    (worker,) = pods(node_type="worker")
    script = "id -u; for tool in cc gcc g++ make wget curl; do command -v $tool; done; touch /opt/baton/x; true"
    said = kubectl("exec", worker["metadata"]["name"], "-c", "ray-worker", "--", "bash", "-c", script, check=False)
    assert said.stdout.split() == ["1000"]
    assert "Read-only file system" in said.stderr
