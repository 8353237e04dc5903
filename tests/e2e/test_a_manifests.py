"""The same without Helm: the overlay of the cpu shape serves, and goes with `kubectl delete`."""

import httpx
import yaml

from tests.e2e.kube import GONE, RELEASE, START, Forward, kubectl, pods, run, wait_for
from tests.e2e.test_9_uninstall import left

OVERLAY = "manifests/overlays/cpu"


def test_the_overlay_serves(namespace):
    kubectl("apply", "-k", OVERLAY)
    kubectl("wait", f"rayservice/{RELEASE}", "--for=condition=Ready", f"--timeout={START}s", seconds=START + 30)
    kubectl("wait", "jobs", "--all", "--for=condition=Complete", f"--timeout={START}s", seconds=START + 30)
    forward = Forward(f"{RELEASE}-serve-svc", 8000)
    try:
        body = {"messages": [{"role": "user", "content": "What does the guardrail do?"}]}
        answer = httpx.post(f"{forward.url}/v1/chat/completions", json=body, timeout=180)
        assert answer.json()["baton"]["citations"]
    finally:
        forward.close()
    # All but the namespace, which the stories share.
    for found in yaml.safe_load_all(run("kubectl", "kustomize", OVERLAY)):
        if found["kind"] != "Namespace":
            kubectl("delete", found["kind"], found["metadata"]["name"], "--ignore-not-found", "--wait=false")
    wait_for("no pod left", lambda: not pods(), GONE, every=3)
    wait_for("an empty namespace", lambda: not left(), GONE, every=3)
