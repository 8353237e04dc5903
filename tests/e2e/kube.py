"""The kind cluster as tests see it: kubectl, helm, waiting with a deadline and a reason, lasting port-forwards."""

import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = os.environ.get("BATON_CLUSTER", "baton")
CONTEXT = f"kind-{CLUSTER}"
NAMESPACE = os.environ.get("BATON_NAMESPACE", "baton")
RELEASE = os.environ.get("BATON_RELEASE", "baton")
CHART = ROOT / "charts" / "baton"

# Deadlines in seconds, for two cores that everything shares. A start: pods pull nothing, then four processes import the
# engine one after another.
START = 1200
PODS = 300
LIVE = 30
GONE = 240


def run(*command, seconds=120, check=True, text=None):
    """Run a command; return its output, and fail with what it said where it fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=seconds, input=text
    )
    assert not check or done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout if check else done


def kubectl(*arguments, **options):
    """Run kubectl in the release's namespace."""
    return run("kubectl", "--context", CONTEXT, "--namespace", NAMESPACE, *arguments, **options)


def get(*arguments):
    """Return objects as JSON."""
    return json.loads(kubectl("get", *arguments, "-o", "json"))


def helm(*arguments, **options):
    """Run helm in the release's namespace."""
    return run("helm", *arguments, "--kube-context", CONTEXT, "--namespace", NAMESPACE, **options)


def wait_for(what, condition, seconds, every=1.0):
    """Poll until ``condition()`` returns something true, and return it; fail with its last word when time is up."""
    end = time.monotonic() + seconds
    while True:
        found, last = None, "nothing"
        try:
            found = condition()
        except AssertionError as error:
            last = str(error)
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {seconds} s; last: {last}"
        time.sleep(every)


def pods(**labels):
    """Return the pods of the Ray cluster that do not end, by labels of KubeRay (``node_type="worker"``)."""
    selector = ",".join(
        ["ray.io/cluster", *(f"ray.io/{name.replace('_', '-')}={text}" for name, text in labels.items())]
    )
    found = get("pods", "-l", selector)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def restarts():
    """Return the restarts of all containers of the Ray cluster."""
    return sum(status["restartCount"] for pod in pods() for status in pod["status"].get("containerStatuses", []))


def ray_service():
    """Return the release's RayService."""
    return get("rayservice", RELEASE)


def is_ready():
    """Tell whether the RayService says that it serves, about its newest generation."""
    service = ray_service()
    status = service.get("status", {})
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", [])}
    current = status.get("observedGeneration") == service["metadata"]["generation"]
    return current and conditions.get("Ready") == "True" and conditions.get("UpgradeInProgress") != "True"


def cluster_name():
    """Return the name of the Ray cluster that serves."""
    return ray_service()["status"]["activeServiceStatus"]["rayClusterName"]


_KILL = """
import os, signal, sys
killed = 0
for entry in filter(str.isdigit, os.listdir('/proc')):
    try:
        line = open(f'/proc/{entry}/cmdline').read() + open(f'/proc/{entry}/comm').read()
    except OSError:
        continue
    if sys.argv[1] in line and int(entry) != os.getpid():
        os.kill(int(entry), signal.SIGKILL)
        killed += 1
print(killed)
"""


def kill(name):
    """Kill all processes of the workers whose command or title holds ``name``; return how many there were."""
    script = ("python", "-c", _KILL, name)
    return sum(
        int(kubectl("exec", pod["metadata"]["name"], "-c", "ray-worker", "--", *script))
        for pod in pods(node_type="worker")
    )


def kill_engines():
    """Kill the process of every engine; return how many there were."""
    return kill("EngineCore")


class Forward:
    """A port of this machine that leads to a Service, and goes on doing so when the pod behind it changes."""

    def __init__(self, service, port, namespace=NAMESPACE):
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = ["kubectl", "--context", CONTEXT, "--namespace", namespace, "port-forward"]
        self._command += [f"service/{service}", f"{self.port}:{port}"]
        self._ended = threading.Event()
        self._process = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        wait_for(f"a port-forward to {service}", self._listens, PODS, every=0.2)

    def _keep(self):
        while not self._ended.is_set():
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._process.wait()
            self._ended.wait(0.5)

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def renew(self):
        """Lead to a pod that is there now."""
        self._process.terminate()
        time.sleep(1)
        wait_for("a renewed port-forward", self._listens, PODS, every=0.2)

    def close(self):
        """End it."""
        self._ended.set()
        self._process.terminate()
        self._thread.join(timeout=10)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
