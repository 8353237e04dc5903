"""GPUs that a blue/green needs, and GPUs that are free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.config.rollout import Plan
from app.errors import ConfigError
from app.ops.doctor.nodes import quantity
from app.ops.rollout.rayservice import KubernetesTarget, Object, States, serve_config
from app.ops.rollout.state import Options
from app.ops.rollout.target import application, settings_of

_ENDED = frozenset({"Succeeded", "Failed"})
#: States of a replica that serves nobody (any more, or yet), and of one that holds no GPU.
_NOT_SERVING = frozenset({"STARTING", "STOPPING", "STOPPED"})
_GONE = frozenset({"STOPPED"})
_GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Need:
    """What a blue/green takes: replicas of the old and of the new application, and GPUs of each replica."""

    sizes: tuple[int, int]
    old_gpus: float
    new_gpus: float
    new_running: int

    @property
    def wanted(self) -> float:
        """GPUs of the replicas that have to start."""
        return max(0, self.sizes[1] - self.new_running) * self.new_gpus


def need(config: Mapping[str, Any], plan: Plan, states: States) -> Need:
    """Return what the plan takes: of the old application, the replicas that it runs with now.

    Raises ConfigError where an application cannot be scaled to nothing.
    """
    names = plan.blue_green
    assert names is not None
    options = settings_of(config, plan).replicas
    for name in (names.old, names.new):
        if "num_replicas" in options[name]:
            raise ConfigError(
                f"{name} has a fixed num_replicas, and Serve takes no 0 there: give the model's options an "
                "autoscaling_config (min_replicas and max_replicas may be equal), and apply that first."
            )
    old = replicas(options[names.old], _count(states, names.old, _GENERATOR, _NOT_SERVING), least=1)
    return Need(
        (old, names.replicas or old),
        gpus_of(application(config, names.old).get("args") or {}),
        gpus_of(application(config, names.new).get("args") or {}),
        replicas(options[names.new], _count(states, names.new, _GENERATOR, _NOT_SERVING)),
    )


def replicas(options: Options, now: int, least: int = 0) -> int:
    """Return how many replicas an application has: those of ``now``, or those that it is yet to start with."""
    return max(least, options.get("min_replicas", 1), now or options.get("initial_replicas", 0))


def _count(states: States, application: str, deployment: str, but: frozenset[str]) -> int:
    return sum(state not in but for state in states.get(application, {}).get(deployment, ()))


def gpus_of(engine: Mapping[str, Any]) -> float:
    """Return the GPUs of one replica of an engine (``LLMConfig``); the chart counts them in the same way."""
    kwargs = engine.get("engine_kwargs") or {}
    world = int(kwargs.get("tensor_parallel_size") or 1) * int(kwargs.get("pipeline_parallel_size") or 1)
    placement = engine.get("placement_group_config") or {}
    if placement.get("bundles"):
        return sum(float(bundle.get("GPU") or 0) for bundle in placement["bundles"])
    if placement.get("bundle_per_worker"):
        return world * float(placement["bundle_per_worker"].get("GPU") or 0)
    return float(world)


def check(found: Need, free: float, plan: Plan, *, in_place: bool) -> None:
    """Raise ConfigError, with the numbers, where the GPUs do not suffice or no replica could stay."""
    names = plan.blue_green
    assert names is not None
    if in_place:
        _check_in_place(found, names.old)
        return
    if found.wanted > free:
        raise ConfigError(
            f"{names.new} needs {found.wanted:g} GPUs ({found.sizes[1]} replicas of {found.new_gpus:g}), and "
            f"{free:g} are free: free some, ask for fewer with blueGreen.replicas, or let old replicas make room with "
            "--in-place."
        )


def _check_in_place(found: Need, old: str) -> None:
    have, wanted = found.sizes
    if have < 2:
        raise ConfigError(
            f"--in-place: {old} has one replica with {found.old_gpus:g} GPUs, and one has to stay: {found.new_gpus:g} "
            "more GPUs are needed. Free them and leave --in-place out, or raise the old model's min_replicas first."
        )
    if wanted != have:
        raise ConfigError(f"--in-place exchanges the {have} replicas one by one: leave blueGreen.replicas out.")
    if found.new_gpus > found.old_gpus:
        raise ConfigError(
            f"--in-place: a new replica takes {found.new_gpus:g} GPUs and an old one gives up {found.old_gpus:g}: "
            f"{found.new_gpus - found.old_gpus:g} are missing."
        )


def free_gpus(target: KubernetesTarget, service: Object, states: States) -> float:
    """Return the GPUs of the cluster that nobody uses. Raises ConfigError, StageUnavailable.

    Those of schedulable nodes that no pod asked for, and those of the release's own pods that no replica has or is
    meant to take. Any extended resource that ends with ``/gpu`` counts.
    """
    nodes = [node for node in target.items("/api/v1/nodes") if not (node.get("spec") or {}).get("unschedulable")]
    pods = target.items("/api/v1/pods")
    names = {node["metadata"]["name"] for node in nodes}
    there = sum(_gpus((node.get("status") or {}).get("allocatable") or {}) for node in nodes)
    taken = sum(_pod(pod) for pod in pods if (pod.get("spec") or {}).get("nodeName") in names)
    cluster = ((service.get("status") or {}).get("activeServiceStatus") or {}).get("rayClusterName")
    own = sum(_pod(pod) for pod in pods if _label(pod, "ray.io/cluster") == cluster and cluster)
    return max(0.0, there - taken) + max(0.0, own - _taken(serve_config(service), states))


def _taken(config: Mapping[str, Any], states: States) -> float:
    """Return the GPUs that replicas of all applications have, or are to have as configured."""
    total = 0.0
    for found in config.get("applications") or []:
        for deployment in found.get("deployments") or []:
            name = str(deployment.get("name"))
            now = _count(states, str(found.get("name")), name, _GONE)
            scaling = deployment.get("autoscaling_config") or {}
            count = replicas(scaling, now) if scaling else max(now, int(deployment.get("num_replicas") or 1))
            own = float((deployment.get("ray_actor_options") or {}).get("num_gpus") or 0)
            engine = gpus_of(found.get("args") or {}) if name == _GENERATOR else 0.0
            total += count * (own + engine)
    return total


def _pod(pod: Object) -> float:
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return 0.0
    containers = (pod.get("spec") or {}).get("containers") or []
    return sum(_gpus((part.get("resources") or {}).get("requests") or {}) for part in containers)


def _gpus(amounts: Mapping[str, Any]) -> float:
    return sum(quantity(amount) for name, amount in amounts.items() if name.endswith("/gpu"))


def _label(pod: Object, name: str) -> str | None:
    labels: Iterable[tuple[str, str]] = ((pod.get("metadata") or {}).get("labels") or {}).items()
    return dict(labels).get(name)
