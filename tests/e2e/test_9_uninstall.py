"""Uninstall: what the release made is gone."""

from tests.e2e.kube import GONE, RELEASE, helm, kubectl, wait_for

# Kubernetes' own objects of any namespace, the Secrets that the stories made, and what passes by itself.
KEPT = {"configmap/kube-root-ca.crt", "serviceaccount/default", "secret/baton-keys", "secret/baton-client"}
PASSING = ("event", "lease", "endpoint", "podmetrics")


def left():
    """Return what stands in the namespace."""
    kinds = kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
    wanted = ",".join(kind for kind in kinds if not kind.startswith(PASSING))
    found = kubectl("get", wanted, "-o", "name", "--ignore-not-found", seconds=120).split()
    return sorted(set(found) - KEPT)


def test_nothing_is_left_behind(release):
    release.close()
    assert left()
    helm("uninstall", RELEASE, "--wait", "--timeout", "5m", seconds=360)
    wait_for("an empty namespace", lambda: not left() or _fail(left()), GONE, every=3)


def _fail(names):
    raise AssertionError(f"left: {names}")
