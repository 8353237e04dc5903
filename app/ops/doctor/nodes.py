"""Checks of nodes against the worker groups: labels, taints, GPUs and other devices, room.

What already runs on the nodes is not counted, and affinity is not weighed: the scheduler has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.config.chart.kinds import size_bytes
from app.config.chart.pods import PlacementValues, PodValues, WorkerGroup
from app.config.chart.values import ChartValues
from app.ops.doctor.cluster import Cluster, Object
from app.ops.doctor.findings import Finding, fault, ok, warning

#: What a cluster says beyond what the values may: thousandths, volumes without an end, powers of ten.
_MORE_UNITS = {"m": 1e-3, "P": 1e15, "E": 1e18, "Pi": 2.0**50, "Ei": 2.0**60}


def check_groups(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for nodes that can take the head and each worker group."""
    nodes = cluster.nodes()
    yield from _check_pod("head", "head", values.head, nodes, values.head.resources.requests, pods=(1, 1))
    for index, group in enumerate(values.worker_groups):
        yield from _check_group(index, group, nodes, values.autoscaling.enabled)


def check_classes(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Look for the runtime and priority classes that pods name."""
    for key, pod in _pods(values):
        if pod.runtime_class_name and cluster.runtime_class(pod.runtime_class_name) is None:
            yield _no_class(f"{key}.runtimeClassName", "runtime class", pod.runtime_class_name)
    places: list[tuple[str, PodValues | PlacementValues]] = [*_pods(values), ("jobs", values.jobs)]
    if values.gcs_fault_tolerance.redis.enabled:
        places.append(("gcsFaultTolerance.redis", values.gcs_fault_tolerance.redis))
    for key, place in places:
        if place.priority_class_name and cluster.priority_class(place.priority_class_name) is None:
            yield _no_class(f"{key}.priorityClassName", "priority class", place.priority_class_name)


def gpu_memory(group: WorkerGroup, nodes: Sequence[Object]) -> int | None:
    """Return the bytes of memory of one GPU of this group, by the nodes' labels; the smallest where they differ."""
    label = "nvidia.com/gpu.memory"
    sizes = [int(found) for node in matching(group, nodes) if (found := labels(node).get(label, "")).isdigit()]
    return min(sizes) * 2**20 if sizes else None


def matching(pod: PodValues, nodes: Sequence[Object]) -> list[Object]:
    """Return the schedulable nodes whose labels and taints suit a pod."""
    return [node for node in nodes if _selected(pod, node) and not untolerated(pod, node)]


def labels(node: Object) -> Mapping[str, str]:
    """Return a node's labels."""
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def untolerated(pod: PodValues, node: Object) -> list[str]:
    """Return the taints of a node that keep a pod off it."""
    taints = list(node.get("spec", {}).get("taints") or [])
    if node.get("spec", {}).get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    hard = [taint for taint in taints if taint.get("effect") in {"NoSchedule", "NoExecute"}]
    bad = [taint for taint in hard if not any(_tolerates(toleration, taint) for toleration in pod.tolerations)]
    return sorted({f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in bad})


def quantity(text: str | int | float) -> float:
    """Return a quantity of Kubernetes as a number: bytes, cores, pieces."""
    text = str(text)
    for unit, size in _MORE_UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * size
    return float(size_bytes(text))


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    exists = toleration.get("operator", "Equal") == "Exists"
    key = toleration.get("key", "")
    same_key = key == taint["key"] or (not key and exists)
    same_value = exists or toleration.get("value", "") == taint.get("value", "")
    return same_key and same_value and toleration.get("effect", "") in {"", taint["effect"]}


def _selected(pod: PodValues, node: Object) -> bool:
    return all(labels(node).get(key) == value for key, value in pod.node_selector.items())


def _pods(values: ChartValues) -> Iterator[tuple[str, PodValues]]:
    yield "head", values.head
    for index, group in enumerate(values.worker_groups):
        yield f"workerGroups[{index}]", group


def _no_class(key: str, what: str, name: str) -> Finding:
    return fault("classes", f"{key} names the {what} {name}, which does not exist", f"create it, or change {key}")


def _requests(group: WorkerGroup) -> dict[str, str]:
    wanted = dict(group.resources.requests)
    if group.gpus:
        wanted[group.gpu_resource] = str(group.gpus)
    if group.rdma.resource:
        wanted[group.rdma.resource] = str(group.rdma.count)
    if quantity(group.hugepages.amount):
        wanted[f"hugepages-{group.hugepages.size}"] = group.hugepages.amount
    return wanted


def _check_group(index: int, group: WorkerGroup, nodes: Sequence[Object], scaled: bool) -> Iterator[Finding]:
    least, most = (group.min_replicas, group.max_replicas) if scaled else (group.replicas, group.replicas)
    pods = (least * group.num_of_hosts, most * group.num_of_hosts)
    yield from _check_pod(f"workerGroups[{index}]", f"worker group {group.name}", group, nodes, _requests(group), pods)
    product = "nvidia.com/gpu.product"
    kinds = {found for node in matching(group, nodes) if (found := labels(node).get(product))}
    wanted = group.accelerator.replace("-", "").lower()
    if wanted and kinds and not any(wanted in kind.replace("-", "").lower() for kind in kinds):
        yield warning(
            f"worker group {group.name}",
            f"accelerator is {group.accelerator}, and its nodes carry {', '.join(sorted(kinds))}",
            f"correct workerGroups[{index}].accelerator, or select other nodes by workerGroups[{index}].nodeSelector",
        )


def _check_pod(
    key: str, topic: str, pod: PodValues, nodes: Sequence[Object], requests: Mapping[str, str], pods: tuple[int, int]
) -> Iterator[Finding]:
    selected = [node for node in nodes if _selected(pod, node)]
    if not selected:
        yield _no_labels(key, topic, pod, nodes)
        return
    open_nodes = matching(pod, selected)
    if not open_nodes:
        taints = ", ".join(sorted({taint for node in selected for taint in untolerated(pod, node)}))
        yield fault(topic, f"every node that suits it has a taint: {taints}", f"add it to {key}.tolerations")
        return
    yield from _check_room(key, topic, open_nodes, requests, pods)


def _no_labels(key: str, topic: str, pod: PodValues, nodes: Sequence[Object]) -> Finding:
    wanted = ", ".join(f"{name}={value}" for name, value in pod.node_selector.items())
    there = {name: sorted({labels(node)[name] for node in nodes if name in labels(node)}) for name in pod.node_selector}
    seen = "; ".join(f"{name}: {', '.join(found) or 'on no node'}" for name, found in there.items())
    mend = f"change {key}.nodeSelector, or label nodes: kubectl label node NODE {wanted.replace(', ', ' ')}"
    return fault(topic, f"no node has the labels {wanted} ({seen or 'there are no nodes'})", mend)


def _check_room(
    key: str, topic: str, nodes: Sequence[Object], requests: Mapping[str, str], pods: tuple[int, int]
) -> Iterator[Finding]:
    needed, most = pods
    room = sum(_fitting(node, requests) for node in nodes)
    if room == 0:
        yield _nothing_fits(key, topic, nodes, requests)
    elif room < needed:
        mend = f"add nodes, or lower replicas and minReplicas of {key}"
        yield fault(topic, f"{len(nodes)} nodes hold {room} of its pods, and it always wants {needed}", mend)
    elif room < most:
        mend = f"let a cluster autoscaler add nodes, or lower {key}.maxReplicas"
        yield warning(topic, f"{len(nodes)} nodes hold {room} of its pods, and it may want {most}", mend)
    else:
        yield ok(topic, f"{len(nodes)} nodes hold {room} of its pods, and it wants {most} at most")


def _allocatable(node: Object, name: str) -> float:
    return quantity((node.get("status", {}).get("allocatable") or {}).get(name, "0"))


def _fitting(node: Object, requests: Mapping[str, str]) -> int:
    wanted = {name: quantity(amount) for name, amount in requests.items() if quantity(amount)}
    return int(min((_allocatable(node, name) // amount for name, amount in wanted.items()), default=1))


def _nothing_fits(key: str, topic: str, nodes: Sequence[Object], requests: Mapping[str, str]) -> Finding:
    best = {name: max(_allocatable(node, name) for node in nodes) for name in requests}
    short = [name for name, amount in requests.items() if best[name] < quantity(amount)]
    if not short:
        return fault(
            topic, "no single node has all that one of its pods wants", f"lower {key}.resources, or add larger nodes"
        )
    name = short[0]
    if best[name] == 0 and name not in {"cpu", "memory"}:
        offered = sorted(
            {entry for node in nodes for entry in node.get("status", {}).get("allocatable", {}) if "/" in entry}
        )
        mend = f"install the device plugin (for NVIDIA: the GPU operator), or correct the resource's name in {key}"
        return fault(topic, f"no node that suits it offers {name} (offered: {', '.join(offered) or 'no device'})", mend)
    mend = f"lower what {key} asks for, or add larger nodes"
    return fault(
        topic, f"a pod wants {requests[name]} of {name}, and the largest node has {_shown(name, best[name])}", mend
    )


def _shown(name: str, amount: float) -> str:
    return (
        f"{amount / 2**30:.1f}Gi" if name in {"memory", "ephemeral-storage"} or "hugepages" in name else f"{amount:g}"
    )
