"""Servers that stand in for a cluster, and rollouts that do not wait."""

import pytest

from app.ops.kube_client import api_client
from app.ops.rollout import __main__ as command
from app.ops.rollout.rayservice import KubernetesTarget
from tests.unit.ops.doctor.conftest import write_kubeconfig
from tests.unit.ops.rollout.sites import KubeApi
from tests.unit.ops.serving import serving


@pytest.fixture
def kube(tmp_path, monkeypatch):
    """A Kubernetes API with one RayService, to which ``KUBECONFIG`` leads."""
    api = KubeApi()
    with serving(api.server()) as server:
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield api


@pytest.fixture
def target(kube):
    """The RayService as a target whose waiting is recorded in ``slept``."""
    found = KubernetesTarget(api_client(), "ns", "baton", lambda seconds: found.slept.append(seconds))
    found.slept = []
    return found


@pytest.fixture
def quick(monkeypatch):
    """A command whose clock jumps; ``jumps``: what to do at each."""
    clock = QuickClock()
    monkeypatch.setattr(command, "_SystemClock", lambda: clock)
    return clock


class QuickClock:
    """A clock that jumps."""

    def __init__(self):
        self.time = 1_000_000.0
        self.script = []

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds
        if self.script:
            self.script.pop(0)()
