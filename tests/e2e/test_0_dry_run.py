"""The API server takes every shape as it is rendered, and refuses what its own rules forbid."""

import json

import pytest
import yaml

from tests.e2e.kube import CHART, CONTEXT, NAMESPACE, RELEASE, ROOT, helm, kubectl, run

SHAPES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
# Their definitions are not part of this cluster: the chart tests check these objects.
ELSEWHERE = ("gateway.networking.k8s.io/", "monitoring.coreos.com/")


def rendered(shape):
    # Pods of Jobs and tests name an account, which has to be there already.
    account = "serviceAccount.create=false"
    text = helm("template", "dry", CHART, "-f", CHART / "ci" / f"{shape}-values.yaml", "--set", account)
    return [found for found in yaml.safe_load_all(text) if found]


@pytest.fixture(scope="module")
def scratch(cluster):
    """A namespace for objects that are never made."""
    name = f"{NAMESPACE}-dry-run"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_server_takes_every_shape(namespace, shape):
    objects = [found for found in rendered(shape) if not found["apiVersion"].startswith(ELSEWHERE)]
    assert any(found["kind"] == "RayService" for found in objects)
    text = "\n---\n".join(json.dumps(found) for found in objects)
    said = kubectl("apply", "--dry-run=server", "-f", "-", text=text, check=False)
    assert said.returncode == 0, said.stderr
    assert "unknown field" not in said.stderr
    assert "would violate PodSecurity" not in said.stderr or shape == "h100-multinode", said.stderr


def test_the_servers_own_rules_hold(namespace):
    (service,) = [found for found in rendered("cpu") if found["kind"] == "RayService"]
    service["spec"]["managedBy"] = "somebody"
    said = kubectl("apply", "--dry-run=server", "-f", "-", text=json.dumps(service), check=False)
    assert said.returncode != 0
    assert "managedBy" in said.stderr


@pytest.mark.parametrize(
    "overlay", sorted(path.parent.name for path in ROOT.glob("manifests/overlays/*/kustomization.yaml"))
)
def test_the_server_takes_every_overlay(scratch, overlay):
    text = run("kubectl", "kustomize", f"manifests/overlays/{overlay}")
    # Into a namespace of their own: a release may stand under the same names in theirs.
    objects = [found for found in yaml.safe_load_all(text) if found["kind"] != "Namespace"]
    for found in objects:
        found["metadata"]["namespace"] = scratch
    served = [found for found in objects if not found["apiVersion"].startswith(ELSEWHERE)]
    apply = ["kubectl", "--context", CONTEXT, "apply", "--dry-run=server", "-f", "-"]
    said = run(*apply, text="\n---\n".join(map(json.dumps, served)))
    assert f"rayservice.ray.io/{RELEASE} " in said
