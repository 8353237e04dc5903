"""Checks of models: room for their files, a hub to fetch them from, GPUs that fit them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.config.chart.kinds import size_bytes
from app.config.chart.pods import PodValues, WorkerGroup
from app.config.chart.values import ChartValues
from app.config.embedder import looks_like_a_path
from app.ops.doctor.cluster import Cluster
from app.ops.doctor.findings import Finding, fault, ok, warning
from app.ops.doctor.nodes import gpu_memory, matching, quantity
from app.ops.doctor.weights import loaded_bytes, stored_bytes

HUB = "https://huggingface.co"
_HUB_SECONDS = 8.0
_GB = 1e9
# Of the memory that the engine may take, weights leave this share to the key-value cache and activations.
_WEIGHTS_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the values name: where it comes from and how its engine spreads it."""

    key: str
    source: str
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parallel(self) -> int:
        """GPUs that hold one copy."""
        return int(self.engine.get("tensor_parallel_size", 1)) * int(self.engine.get("pipeline_parallel_size", 1))


def models(values: ChartValues) -> list[Model]:
    """Return the engines' models and the embedder."""
    found = []
    for name, model in values.models.items():
        loading = model.engine.get("model_loading_config") or {}
        source = loading.get("model_source") or loading.get("model_id") or ""
        found.append(Model(f"models.{name}", str(source), model.engine.get("engine_kwargs") or {}))
    embedder = values.pipeline.embedder
    if embedder.kind == "huggingface":
        found.append(Model("pipeline.embedder", embedder.source))
    return found


def check_cache(values: ChartValues, cluster: Cluster, folder: Path | None = None) -> Iterator[Finding]:
    """Compare the room for model files with what they take. ``folder``: the cache, where it is mounted here."""
    if values.model_cache.offline:
        return  # nothing is fetched: what has to be there is looked for by check_hub
    fetched = {model.source: model for model in models(values) if not looks_like_a_path(model.source)}
    for extra in values.model_cache.preload.models:
        fetched.setdefault(extra, Model("modelCache.preload.models", extra))
    if folder is not None:
        fetched = {source: model for source, model in fetched.items() if not _is_cached(folder, source)}
    sizes = {source: stored_bytes(source) for source in fetched}
    for source, size in sizes.items():
        if size is None:
            mend = "look its size up on the hub and compare it with the cache yourself"
            yield warning("model cache", f"the size of {source} cannot be told from its name", mend)
    needed = sum(size for size in sizes.values() if size)
    if needed:
        told = ", ".join(f"{source} {size / _GB:.0f} GB" for source, size in sizes.items() if size)
        yield from _compare(values, cluster, folder, needed, told)


def check_hub(values: ChartValues, cluster: Cluster, folder: Path | None = None) -> Iterator[Finding]:
    """Ask the model hub or its mirror for an answer, where a model has to come from there. ``folder`` as above."""
    del cluster
    wanted = sorted({model.source for model in models(values) if not looks_like_a_path(model.source)})
    if not wanted:
        yield ok("model hub", "every model is a path: no hub is needed")
        return
    if values.model_cache.offline:
        yield _offline(values, wanted, folder)
        return
    url = values.model_cache.mirror or values.env.get("HF_ENDPOINT") or HUB
    try:
        # Certificates take long to load, so they are loaded for https only (always checked there).
        status = httpx.get(url, timeout=_HUB_SECONDS, verify=url.startswith("https:")).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        yield fault(
            "model hub",
            f"{url} does not answer from here ({type(error).__name__}), and {', '.join(wanted)} must come from it",
            "open the way to it, set modelCache.mirror, or mount the files and set modelCache.offline",
        )
        return
    yield ok("model hub", f"{url} answers ({status})")


def _offline(values: ChartValues, wanted: Sequence[str], folder: Path | None) -> Finding:
    missing = [source for source in wanted if folder is not None and not _is_cached(folder, source)]
    if missing:
        return fault(
            "model hub",
            f"modelCache.offline is set, and {', '.join(missing)} does not lie in the cache {folder}",
            f"fetch it: HF_HUB_CACHE={folder}/hub python -m app.ops.models pull {missing[0]}, or name folders",
        )
    where = values.model_cache.mount_path
    return ok("model hub", f"never asked (modelCache.offline): {', '.join(wanted)} must lie in the cache at {where}")


def check_parallelism(values: ChartValues, cluster: Cluster) -> Iterator[Finding]:
    """Compare each model's GPUs with what its weights need."""
    nodes = cluster.nodes()
    groups = [group for group in values.worker_groups if group.gpus and matching(group, nodes)]
    memories = [found for group in groups if (found := gpu_memory(group, nodes))]
    if not memories:
        return
    memory = min(memories)
    for model in models(values):
        weights = loaded_bytes(model.source, model.engine)
        if model.key.startswith("models.") and weights:
            yield _parallel(model, weights, memory, groups)


def _parallel(model: Model, weights: int, memory: int, groups: Sequence[WorkerGroup]) -> Finding:
    usable = memory * float(model.engine.get("gpu_memory_utilization", 0.9))
    gpus = f"{memory / 2**30:.0f} GiB"
    if weights / model.parallel > usable:
        enough = _power_of_two(weights / (usable * _WEIGHTS_SHARE))
        return fault(
            "parallelism",
            f"{model.source} takes {weights / _GB:.0f} GB, more than {model.parallel} GPUs of {gpus} may hold",
            f"spread it over {enough} GPUs ({model.key}.engine.engine_kwargs: tensor_parallel_size, up to the "
            f"{max(group.gpus for group in groups)} of a pod, then pipeline_parallel_size), or quantize it",
        )
    needed = _power_of_two(weights / (usable * _WEIGHTS_SHARE))
    if model.parallel > needed:
        return warning(
            "parallelism",
            f"{model.source} takes {weights / _GB:.0f} GB, which {needed} GPUs of {gpus} hold with room for the cache; "
            f"{model.key} spreads it over {model.parallel}",
            f"set tensor_parallel_size to {needed} and use the other GPUs for more replicas, unless long prompts or "
            "latency ask for more",
        )
    return ok("parallelism", f"{model.source} takes {weights / _GB:.0f} GB on {model.parallel} GPUs of {gpus}")


def _power_of_two(least: float) -> int:
    found = 1
    while found < least:
        found *= 2
    return found


def _is_cached(folder: Path, source: str) -> bool:
    snapshots = folder / "hub" / f"models--{source.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


def _compare(values: ChartValues, cluster: Cluster, folder: Path | None, needed: int, told: str) -> Iterator[Finding]:
    cache = values.model_cache
    if folder is not None:
        yield _verdict(
            shutil.disk_usage(folder).free, needed, told, f"{folder} has", "free some, or enlarge the volume"
        )
    elif cache.kind == "claim" and cache.claim.existing:
        claim = cluster.claim(cache.claim.existing)
        if claim is not None:
            size = claim.get("status", {}).get("capacity", claim["spec"]["resources"]["requests"])["storage"]
            mend = f"enlarge the claim {cache.claim.existing}"
            yield _verdict(int(quantity(size)), needed, told, f"the claim {cache.claim.existing} has", mend)
    elif cache.kind == "claim":
        size = cache.claim.size
        yield _verdict(size_bytes(size), needed, told, "modelCache.claim.size is", "raise modelCache.claim.size")
    elif cache.kind == "none":
        yield _ephemeral(values, cluster, needed, told)


def _verdict(room: int, needed: int, told: str, has: str, mend: str) -> Finding:
    if room < needed:
        return fault(
            "model cache", f"{has} {room / _GB:.0f} GB, and the files take {needed / _GB:.0f} GB: {told}", mend
        )
    return ok("model cache", f"{has} {room / _GB:.0f} GB for {needed / _GB:.0f} GB: {told}")


def _ephemeral(values: ChartValues, cluster: Cluster, needed: int, told: str) -> Finding:
    """Without a cache each pod fetches its models onto the node's own disk, at each start."""
    nodes = cluster.nodes()
    pods: Sequence[PodValues] = values.worker_groups or [values.head]
    rooms = [
        quantity(node.get("status", {}).get("allocatable", {}).get("ephemeral-storage", "0"))
        for pod in pods
        for node in matching(pod, nodes)
    ]
    mend = "set modelCache.kind to claim or hostPath, so that files are fetched once"
    if rooms and min(rooms) < needed:
        return fault(
            "model cache",
            f"pods would fetch {needed / _GB:.0f} GB ({told}) onto nodes with {min(rooms) / _GB:.0f} GB of disk",
            mend,
        )
    return warning("model cache", f"each pod fetches {needed / _GB:.0f} GB at each start: {told}", mend)
