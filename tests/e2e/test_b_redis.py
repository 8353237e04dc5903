"""With its state in Redis the cluster loses its head and nobody notices: workers serve on, engines included."""

import httpx

from tests.e2e.kube import CLUSTER, GONE, PODS, RELEASE, START, helm, kubectl, pods, run, wait_for
from tests.e2e.release import Callers, Release
from tests.e2e.test_9_uninstall import left

IMAGE = "redis:7-bookworm"
SECRET = {"name": "baton-redis", "key": "password"}
VALUES = {
    "gcsFaultTolerance": {"enabled": True, "passwordSecret": SECRET, "redis": {"enabled": True, "storage": "1Gi"}},
    # Its proxy would go with it.
    "head": {"serves": False},
}


def serves(head):
    return all(state["ready"] for state in head["status"].get("containerStatuses", [])) and head["status"].get("podIP")


def test_a_head_that_dies_interrupts_nobody(client_secret, tmp_path):
    if run("docker", "image", "inspect", IMAGE, check=False).returncode == 0:
        run("kind", "load", "docker-image", "--name", CLUSTER, IMAGE, seconds=300)
    kubectl("create", "secret", "generic", SECRET["name"], f"--from-literal={SECRET['key']}=a-long-password")
    release = Release(tmp_path)
    try:
        release.upgrade(VALUES)
        release.open()
        engines = release.replicas("model-smollm2")
        (head,) = pods(node_type="head")

        def came_back():
            found = [pod for pod in pods(node_type="head") if serves(pod)]
            return [pod["metadata"]["uid"] for pod in found] not in ([], [head["metadata"]["uid"]])

        def knows_them():
            try:
                return release.replicas("model-smollm2") == engines
            except httpx.HTTPError:  # the way in led to the head that died
                release.dashboard.renew()
            except KeyError:
                pass
            return False

        with Callers(lambda: release.chat("Say hello."), pause=0.5) as callers:
            kubectl("delete", "pod", head["metadata"]["name"], "--grace-period=1", "--wait=false")
            wait_for("another head", came_back, START)
            wait_for("the same engines, known to the new head", knows_them, PODS)
        assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])
    finally:
        release.close()
        helm("uninstall", RELEASE, "--wait", "--timeout", "5m", seconds=360)
        kubectl("delete", "secret", SECRET["name"])
    wait_for("an empty namespace", lambda: not left(), GONE, every=3)
