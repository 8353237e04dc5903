"""Item 5: one copy of a light model's weights per node, against one loaded from disk per replica."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from app.ops.local_cluster import ENVIRONMENT
from app.ops.models import prepare_embedder
from tests.bench.measure import ROOT, Result, ratio
from tests.bench.weights_replicas import proportional_bytes

#: Wide: a shared CI machine with two cores. A copy where there should be a mapping moves the first below 1.5. What the
#: small stand-in takes is lost in the memory of its process: of that only the whole run tells.
BOUNDS: dict[str, tuple[float, float]] = {
    "disk_over_shared_load": (1.5, 200),
    "update_over_whole": (0, 0.02),
    "mixed_requests": (0, 0),
    "versioned_over_plain": (0.3, 3),
}
GOAL_START, GOAL_METADATA, GOAL_REQUESTS = 5, 0.15, 100_000
METRICS_PORT = 24000
_MIB = 1 << 20
_FOLLOW_SECONDS, _PUBLISH_SECONDS = 0.05, 0.2


def run(quick: bool) -> Result:
    result = Result("weights", "Shared weights: one copy per node")
    with tempfile.TemporaryDirectory() as made, cluster() as ray:
        if quick:
            from tests.bench.weights_models import save_stand_in

            save_stand_in(Path(made))
            fleet = Fleet(ray, 2, "stand-in", made)
        else:
            folder = prepare_embedder(ROOT / ".baton" / "models" / "e5-small")
            fleet = Fleet(ray, 8, "embedder", str(folder))
        memory = measure_memory(fleet)
        loads = ray.get(fleet.replicas[0].alternate.remote(8 if quick else 20))
        update = ray.get(fleet.replicas[0].update.remote())
        swaps = measure_swaps(ray, fleet.replicas[:2], 6_000 if quick else GOAL_REQUESTS)
    report_start(result, fleet, loads)
    report_memory(result, memory)
    report_update(result, update)
    report_swaps(result, swaps, update)
    return result


@contextmanager
def cluster() -> Iterator[Any]:
    """Start a private Ray as the product does, without Serve or a dashboard."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    places = (str(ROOT / "app" / "ops" / "python_start"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=512 * _MIB,
        include_dashboard=False,
        _metrics_export_port=METRICS_PORT,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        yield ray
    finally:
        ray.shutdown()


class Fleet:
    """Replicas in processes of their own, started two at a time: there are two cores."""

    def __init__(self, ray: Any, count: int, kind: str, folder: str) -> None:
        from tests.bench.weights_replicas import EncoderReplica

        self.ray = ray
        actor = ray.remote(EncoderReplica).options(num_cpus=0)
        self.replicas: list[Any] = []
        self.before: list[dict[str, float]] = []
        self.cold: dict[str, list[float]] = {"disk": [], "shared": []}
        for start in range(0, count, 2):
            # One pair shows what a tokenizer takes.
            tokenizer = kind == "embedder" and start == 0
            pair = [actor.remote(kind, folder, tokenizer) for _ in range(min(2, count - start))]
            self.before += ray.get([replica.ready.remote() for replica in pair])
            self.replicas += pair
        self._keeper = _processes_named("ray::WeightKeeper")
        self._raylet = _processes_named("raylet")
        self.empty_store = self.store_bytes()
        self.keeper = sum(proportional_bytes(pid)["own"] for pid in self._keeper)
        self._first_loads()

    def _first_loads(self) -> None:
        """Each replica's first load, every other one from disk; the first of all also publishes."""
        get = self.ray.get
        self.publish = 0.0
        for number, replica in enumerate(self.replicas):
            if number % 2 == 0:
                self.cold["disk"].append(get(replica.disk.remote()))
            if number == 0:
                self.publish = get(replica.shared.remote())
            if number % 2:
                self.cold["shared"].append(get(replica.shared.remote()))
            # The first pass brings in libraries and compiles kernels, which is not the weights' memory.
            get(replica.work.remote())
            get(replica.drop.remote())

    def store_bytes(self) -> int:
        """Return the memory of the store's actor, and what Ray's own process maps of the object store."""
        raylet = [proportional_bytes(pid) for pid in self._raylet]
        keeper = sum(proportional_bytes(pid)["all"] for pid in self._keeper)
        return keeper + sum(one["all"] - one["own"] for one in raylet)

    def memory(self, count: int) -> list[dict[str, int]]:
        """Return the memory of the first ``count`` replicas."""
        found: list[dict[str, int]] = self.ray.get([replica.memory.remote() for replica in self.replicas[:count]])
        return found


def _processes_named(*names: str) -> list[int]:
    """Return the processes of this cluster whose command begins or ends so: those below this one."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                commands[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
            except OSError:
                continue

    def below(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid, command in commands.items() if Path(command).name.startswith(names) and below(pid)]


def measure_memory(fleet: Fleet) -> dict[str, Any]:
    """Return, by number of replicas, what the weights add to the memory of all processes concerned, in bytes.

    What lies in the object store counts from before it was filled, in the replicas and in the store's own processes.
    """
    get = fleet.ray.get
    counts = [count for count in (1, 2, 4, 8) if count <= len(fleet.replicas)]
    found: dict[str, Any] = {"counts": counts, "disk": [], "shared": [], "whole": {}, "keeper": fleet.keeper}
    for way, part in (("shared", "all"), ("disk", "own")):
        bare = [one["own"] for one in fleet.memory(counts[-1])]
        loaded = 0
        for count in counts:
            for replica in fleet.replicas[loaded:count]:
                get(getattr(replica, way).remote())
            loaded = count
            get([replica.work.remote() for replica in fleet.replicas[:count]])
            each = [one[part] for one in fleet.memory(count)]
            store = fleet.store_bytes() - fleet.empty_store if way == "shared" else 0
            found[way].append(sum(each) - sum(bare[:count]) + store)
            found["whole"][way, count] = each[0]
        get([replica.drop.remote() for replica in fleet.replicas])
    return found


def measure_swaps(ray: Any, replicas: Sequence[Any], requests: int) -> dict[str, Any]:
    """Two replicas answer ``requests`` together while versions are published one after the other."""
    from app.deployments.weight_store import RayStore
    from app.weights.store import publish
    from app.weights.tensors import take_apart
    from tests.bench.weights_models import Tiny

    ray.get([replica.prepare_swaps.remote(_FOLLOW_SECONDS) for replica in replicas])
    store, before = RayStore(), _store_objects(ray)
    running = [replica.swaps.remote("serve", requests // 2, 1) for replica in replicas]
    seconds, version = [], 1
    while ray.wait(running, num_returns=2, timeout=_PUBLISH_SECONDS)[1]:
        version += 1
        start = time.perf_counter()
        publish(store, "tiny", str(version), take_apart(Tiny(version)))
        seconds.append(time.perf_counter() - start)
    found = ray.get(running)
    after = _store_objects(ray)
    in_place = ray.get(replicas[0].swaps.remote("in_place", min(requests, 20_000)))
    return {
        "replicas": found,
        "published": version - 1,
        "publish_seconds": seconds,
        "objects": (before, after),
        "in_place": (in_place, min(requests, 20_000)),
    }


def _store_objects(ray: Any) -> float:
    """Return how many bytes the node's object store holds."""
    from ray._private.internal_api import memory_summary

    line = next(
        line
        for line in memory_summary(ray.get_runtime_context().gcs_address, stats_only=True).splitlines()
        if line.startswith("Plasma memory usage")
    )
    return float(line.split()[3]) * _MIB


def report_start(result: Result, fleet: Fleet, loads: dict[str, list[float]]) -> None:
    """Say how long a replica's start takes, with each of its parts."""
    imports = median(row["imports"] for row in fleet.before)
    tokenizer = median(row["tokenizer"] for row in fleet.before[:2])
    rows = _start_rows(fleet, loads, tokenizer, imports)
    result.table("Start of a replica, ms", ["what", "from disk", "shared", "ratio"], rows)
    result.plot(
        "A replica's start",
        "bar",
        [row[0] for row in rows],
        {"from disk": [row[1] for row in rows], "shared": [row[2] for row in rows]},
        ylabel="ms",
        log=True,
    )
    steady = ratio(loads["disk"], loads["shared"])
    result.ratios |= {
        "disk_over_shared_load": steady.value,
        "disk_over_shared_first_load": ratio(fleet.cold["disk"], fleet.cold["shared"]).value,
        "disk_over_shared_start_with_tokenizer": rows[2][3],
        "disk_over_shared_start_with_imports": rows[3][3],
    }
    reason = (
        f"the files are in the page cache, so loading is {1000 * median(loads['disk']):.0f} ms; unpickling the module "
        f"and looking up its tensors is the floor of {1000 * min(loads['shared']):.0f} ms"
    )
    result.claim(
        "Loading the weights: mapped against from disk",
        f"{GOAL_START}x",
        str(steady),
        steady.value >= GOAL_START,
        reason=reason,
    )
    result.claim(
        "A whole replica's start, imports and tokenizer included",
        f"{GOAL_START}x",
        f"{rows[3][3]:.2f}x",
        rows[3][3] >= GOAL_START,
        reason=f"imports take {imports:.1f} s and the tokenizer {tokenizer:.1f} s of every start; neither is weights",
    )
    result.notes.append(
        f"The first replica of a node loads from disk and publishes: {1000 * fleet.publish:.0f} ms instead of "
        f"{1000 * median(fleet.cold['disk']):.0f}. The model's files were in the page cache throughout."
    )


def _start_rows(fleet: Fleet, loads: dict[str, list[float]], tokenizer: float, imports: float) -> list[list[Any]]:
    """Return what is started, milliseconds from disk, milliseconds shared, and their ratio."""
    rows = []
    for title, found, more in (
        ("the weights, again in one process (median)", loads, 0.0),
        ("the weights, first in a fresh process (median)", fleet.cold, 0.0),
        ("… and the tokenizer", fleet.cold, tokenizer),
        ("… and the imports", fleet.cold, tokenizer + imports),
    ):
        disk, shared = (median(found[way]) + more for way in ("disk", "shared"))
        rows.append([title, 1000 * disk, 1000 * shared, disk / shared])
    return rows


def report_memory(result: Result, memory: dict[str, Any]) -> None:
    """Say what the weights add to the node's memory."""
    counts, disk, shared, keeper = memory["counts"], memory["disk"], memory["shared"], memory["keeper"]
    rows = []
    for count, a, b in zip(counts, disk, shared, strict=True):
        whole = (memory["whole"][way, count] / _MIB for way in ("disk", "shared"))
        rows.append([count, a / _MIB, b / _MIB, a / b, (b + keeper) / _MIB, *whole])
    columns = ["replicas", "weights from disk", "weights shared", "ratio", "shared, with the store's actor"]
    columns += ["the first replica in all, from disk", "the first replica in all, shared"]
    result.table("Memory (proportional set size over all replicas and the store), MiB", columns, rows)
    result.plot(
        "Memory that the weights take",
        "line",
        counts,
        {"from disk": [a / _MIB for a in disk], "shared": [b / _MIB for b in shared]},
        xlabel="replicas",
        ylabel="MiB",
    )
    result.ratios |= {"disk_over_shared_memory": disk[-1] / shared[-1], "shared_memory_over_one": shared[-1] / disk[0]}
    near = shared[-1] / disk[0]
    result.claim(
        f"Memory of {counts[-1]} replicas' weights against that of one loaded from disk",
        "near 1x",
        f"{near:.2f}x",
        near <= 1.5,
        reason="what each forward pass needs beside the weights counts too",
    )
    result.notes.append(f"The store's actor is a process of its own: {keeper / _MIB:.0f} MiB, once per cluster.")


def report_update(result: Result, update: dict[str, Any]) -> None:
    """Say what an update of one tensor ships."""
    rows = [
        ["the whole model", update["tensors"], update["total"]],
        ["of that, in the store (the rest stays mapped from its file)", update["tensors"], update["in_store"]],
        [f"an update of {update['tensor']}", len(update["names"]), update["shipped"]],
        ["manifest and module without tensors", "–", update["metadata"]],
    ]
    result.table("What an update ships", ["what", "tensors", "bytes"], rows)
    result.ratios["update_over_whole"] = update["shipped"] / update["in_store"]
    result.ratios["metadata_bytes_over_whole"] = update["metadata"] / update["in_store"]
    result.claim(
        "An update ships changed tensors only",
        "only those",
        f"{update['shipped']:,} of {update['in_store']:,} bytes ({update['seconds'] * 1000:.0f} ms, "
        f"{update['hashing_seconds'] * 1000:.0f} of them digests)",
        update["names"] == [update["tensor"]],
        reason=f"it shipped {update['names']}",
    )


def report_swaps(result: Result, swaps: dict[str, Any], update: dict[str, Any]) -> None:
    """Say whether any request mixed versions, and what versions cost."""
    found = swaps["replicas"]
    requests, mixed = (sum(one[key] for one in found) for key in ("requests", "mixed"))
    versions = [len(one["versions"]) for one in found]
    per_request = ratio(_all(found, "versioned"), _all(found, "plain"))
    following = sum(one["follow_cpu"] for one in found) / sum(one["request_cpu"] for one in found)
    overhead = per_request.value - 1 + following
    share = update["metadata"] / update["in_store"]
    _table_swaps(result, swaps, requests, mixed, versions)
    result.ratios |= {
        "mixed_requests": mixed,
        "requests": requests,
        "versions_seen": min(versions),
        "versioned_over_plain": per_request.value + following,
        "following_over_requests": following,
        "store_growth_over_swaps": max(0, swaps["objects"][1] - swaps["objects"][0]) / swaps["objects"][0],
    }
    result.claim(
        "Requests that mix versions", f"0 of {GOAL_REQUESTS:,}", f"{mixed} of {requests:,}", mixed == 0, reason="a bug"
    )
    result.claim(
        "Metadata: time per request and of following, bytes",
        f"at most {GOAL_METADATA:.0%}",
        f"{overhead:.1%} of the CPU time ({per_request} per request, {following:.1%} following at "
        f"{swaps['published']} swaps), {share:.2%} of the bytes",
        max(overhead, share) <= GOAL_METADATA,
        reason="each swap looks up and maps every tensor anew",
    )
    result.notes.append(
        f"The object store held {swaps['objects'][0] / _MIB:.0f} MiB before {swaps['published']} swaps and "
        f"{swaps['objects'][1] / _MIB:.0f} after: versions that nobody uses are freed. One publication took "
        f"{1000 * median(swaps['publish_seconds']):.0f} ms (median)."
    )


def _table_swaps(result: Result, swaps: dict[str, Any], requests: int, mixed: int, versions: list[int]) -> None:
    result.table(
        "Requests across swaps",
        [
            "requests",
            "mixed",
            "published",
            "versions seen by each replica",
            "requests/s",
            "mixed when written in place",
        ],
        [
            [
                requests,
                mixed,
                swaps["published"],
                " and ".join(map(str, versions)),
                sum(one["requests"] / one["seconds"] for one in swaps["replicas"]),
                "{} of {}".format(*swaps["in_place"]),
            ]
        ],
    )


def _all(found: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [seconds for one in found for seconds in one[key]]
