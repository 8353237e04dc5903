"""Fixtures of the stories: the cluster, the release in it, and what is collected where one fails.

The cluster is made where it is not there and kept for the next run (`make cluster-down` removes it). The release is the
one of `make cluster-up`, installed anew with the values of the stories, and removed by the last story.
"""

import time

import pytest

from app.keys.file import new_secret
from tests.e2e.keys import keys_file, write_secret
from tests.e2e.kube import CONTEXT, NAMESPACE, ROOT, kubectl, run
from tests.e2e.release import Release

FOLDER = ROOT / ".baton" / "e2e"


def pytest_collection_modifyitems(items):
    """Give stories the time that a cluster takes; the order of the files is the order of the stories."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1500))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Collect what the cluster says when a story fails."""
    report = yield
    if report.failed:
        folder = FOLDER / f"{item.name}-{call.when}-{time.strftime('%H%M%S')}"
        collect(folder)
        report.sections.append(("cluster", f"logs, events and status lie in {folder}"))
    return report


def collect(folder):
    """Write logs of all pods, events, and the status of every object that matters into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = "rayservice,raycluster,pods,services,jobs,persistentvolumeclaims,configmaps"
    for name, arguments in {
        "objects.yaml": ["get", kinds, "-o", "yaml"],
        "pods.txt": ["describe", "pods"],
        "events.txt": ["get", "events", "-A", "--sort-by=.lastTimestamp"],
        "nodes.txt": ["describe", "nodes"],
        "operator.log": _operator_log(),
    }.items():
        (folder / name).write_text(_said(*arguments))
    for pod in _said("get", "pods", "-o", "name").split():
        (folder / f"{pod.split('/')[1]}.log").write_text(_said("logs", pod, "--all-containers", "--tail=2000"))
        if "worker" in pod or "head" in pod:
            serve = 'for f in /tmp/ray/session_latest/logs/serve/*; do echo "== $f"; tail -n 300 "$f"; done'
            (folder / f"{pod.split('/')[1]}-serve.log").write_text(_said("exec", pod, "--", "bash", "-c", serve))


def _said(*arguments):
    done = kubectl(*arguments, check=False, seconds=60)
    return done.stdout + done.stderr


def _operator_log():
    place = _said(
        "get", "deployments", "-A", "-l", "app.kubernetes.io/name in (kuberay,kuberay-operator)",
        "-o", "jsonpath={.items[0].metadata.namespace}/{.items[0].metadata.name}",
    )  # fmt: skip
    namespace, _, name = place.partition("/")
    return ["logs", "--namespace", namespace, f"deployment/{name}", "--tail=2000"]


@pytest.fixture(scope="session")
def cluster():
    """A kind cluster with the operator and the image in it."""
    done = run("scripts/cluster_up.sh", "--no-release", check=False, seconds=2400)
    if done.returncode == 2:
        pytest.exit(done.stderr, returncode=2)
    assert done.returncode == 0, done.stdout + done.stderr
    return CONTEXT


@pytest.fixture(scope="session")
def namespace(cluster):
    """The release's namespace, which lets only `restricted` pods in."""
    text = kubectl("create", "namespace", NAMESPACE, "--dry-run=client", "-o", "yaml")
    kubectl("apply", "-f", "-", text=text)
    for mode in ("enforce", "warn"):
        kubectl("label", "--overwrite", "namespace", NAMESPACE, f"pod-security.kubernetes.io/{mode}=restricted")
    return NAMESPACE


@pytest.fixture(scope="session")
def client_secret(namespace):
    """The secret of the key that the release's own Jobs and tests send; its Secrets are there before the release."""
    secret = new_secret()
    write_secret("baton-keys", "keys.yaml", keys_file(indexer=secret))
    write_secret("baton-client", "secret", secret)
    return secret


@pytest.fixture(scope="session")
def release(namespace, client_secret, tmp_path_factory):
    """The release, installed and open. Stories that change it put it back."""
    found = Release(tmp_path_factory.mktemp("release"))
    found.remove_another()
    found.upgrade()
    found.open()
    yield found
    found.close()
