"""Checks of volumes: storage classes, access modes, claims that must be there."""

from __future__ import annotations

from collections.abc import Iterator

from app.config.chart.pods import ClaimValues
from app.config.chart.values import ChartValues
from app.ops.doctor.cluster import Cluster, Object
from app.ops.doctor.findings import Finding, fault, ok, warning

_DEFAULT = "storageclass.kubernetes.io/is-default-class"
# Provisioners whose volumes one node mounts at a time.
_ONE_NODE = (
    "rancher.io/local-path",
    "kubernetes.io/host-path",
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
)


def claims(values: ChartValues) -> Iterator[tuple[str, ClaimValues]]:
    """Yield the key and the values of each claim that the release uses."""
    store = values.pipeline.store
    if store.kind == "lancedb" and "://" not in store.uri and values.index.kind == "claim":
        yield "index.claim", values.index.claim
    if values.model_cache.kind == "claim":
        yield "modelCache.claim", values.model_cache.claim
    redis = values.gcs_fault_tolerance.redis
    if values.gcs_fault_tolerance.enabled and redis.enabled:
        yield "gcsFaultTolerance.redis", ClaimValues(size=redis.storage, storage_class=redis.storage_class)


def check_claims(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for the claims that are said to exist, and for a storage class for those that the chart makes."""
    wanted = list(claims(values))
    classes = cluster.storage_classes() if any(not claim.existing for _, claim in wanted) else []
    for key, claim in wanted:
        if claim.existing:
            yield _existing(key, claim.existing, cluster)
        else:
            yield from _made(key, claim, classes)


def check_image_volume(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look whether Kubernetes can mount an image as a volume, where the model cache is one."""
    if values.model_cache.kind != "image":
        return
    version = cluster.version()
    if version < (1, 33):
        yield fault(
            "model cache",
            f"modelCache.kind is image, which Kubernetes {version[0]}.{version[1]} cannot mount",
            "upgrade to 1.33 or newer, or set modelCache.kind to claim",
        )
    else:
        yield ok("model cache", f"Kubernetes {version[0]}.{version[1]} mounts images as volumes")


def check_pod_security(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Compare the namespace's pod-security level with what the values ask for."""
    namespace = cluster.namespace_object() or {}
    level = (namespace.get("metadata", {}).get("labels") or {}).get("pod-security.kubernetes.io/enforce")
    if level not in {"restricted", "baseline"}:
        return
    bad = [f"workerGroups[{index}].rdma" for index, group in enumerate(values.worker_groups) if group.rdma.resource]
    if values.model_cache.kind == "hostPath":
        bad.append("modelCache.kind: hostPath")
    if bad:
        yield fault(
            "pod security",
            f"the namespace {cluster.namespace} enforces {level}, which forbids {', '.join(bad)}",
            "change these, or label the namespace pod-security.kubernetes.io/enforce=privileged",
        )
    else:
        yield ok("pod security", f"these values pass the level {level} of the namespace {cluster.namespace}")


def _existing(key: str, name: str, cluster: Cluster) -> Finding:
    claim = cluster.claim(name)
    if claim is None:
        return fault(
            "volumes", f"{key}.existing names {name}, which does not exist", f"create it, or correct {key}.existing"
        )
    phase = claim.get("status", {}).get("phase", "Pending")
    if phase == "Lost":
        return fault("volumes", f"the claim {name} has lost its volume", "restore the volume, or name another claim")
    return ok("volumes", f"the claim {name} is there ({phase})")


def _made(key: str, claim: ClaimValues, classes: list[Object]) -> Iterator[Finding]:
    names = sorted(entry["metadata"]["name"] for entry in classes)
    if claim.storage_class:
        found = [entry for entry in classes if entry["metadata"]["name"] == claim.storage_class]
        text = f"{key}.storageClass names {claim.storage_class}, which does not exist"
    else:
        found = [entry for entry in classes if (entry["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"]
        text = "no storage class is the cluster's default"
    if not found:
        there = f"one of {', '.join(names)}" if names else "a class of a provisioner that you install"
        yield fault("volumes", text, f"set {key}.storageClass to {there}, or {key}.existing to a claim")
        return
    name, provisioner = found[0]["metadata"]["name"], found[0].get("provisioner", "")
    if claim.access_mode in {"ReadWriteMany", "ReadOnlyMany"} and provisioner in _ONE_NODE:
        yield warning(
            "volumes",
            f"{key}.accessMode is {claim.access_mode}, and volumes of {name} ({provisioner}) mount on one node",
            f"set {key}.storageClass to a shared file system's, or {key}.accessMode to ReadWriteOnce on one node",
        )
    else:
        yield ok("volumes", f"{key} gets {claim.size} of the storage class {name}")
