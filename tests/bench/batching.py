"""Item 4: many small calls against one merged call, and questions embedded one by one against in batches."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from app.ops.local_cluster import ENVIRONMENT
from app.ops.models import prepare_embedder
from tests.bench.measure import ROOT, Ratio, Result, percentiles, ratio

if TYPE_CHECKING:
    from tests.bench.batching_calls import Times
    from tests.bench.batching_embedder import Driven, Groups

#: Wide: a shared CI machine with two cores.
BOUNDS: dict[str, tuple[float, float]] = {
    "merged_over_single": (2, 500),
    "task_merged_over_single": (2, 500),
    "batched_over_single_throughput": (0.7, 8),
    "single_over_batched_p99": (0.4, 8),
}
GOAL_MERGED = 4.1
METRICS_PORT = 25000
#: What a setting leaves out is the product's default.
ONE, BATCHED = "max_batch_size 1", "max_batch_size 16 (as shipped)"
SETTINGS: dict[str, dict[str, Any]] = {
    ONE: {"max_batch_size": 1},
    BATCHED: {},
    "max_batch_size 8": {"max_batch_size": 8},
    "max_batch_size 32": {"max_batch_size": 32},
    "16, one batch at a time": {"threads": 1},
    "16, wait of 20 ms": {"batch_wait_seconds": 0.02},
}


def run(quick: bool) -> Result:
    result = Result("batching", "Micro-batching: merged calls, and questions embedded together")
    prepare_embedder(ROOT / ".baton" / "models" / "e5-small")
    # The loop outlives the cluster: Serve's client still calls back while it ends.
    with asyncio.Runner() as loop, cluster():
        from ray import serve

        from tests.bench.batching_calls import create_actors, measure_calls
        from tests.bench.batching_embedder import EmbedderBench

        handle = serve.run(EmbedderBench.bind(), name="embedder-bench", route_prefix=None)
        times = measure_calls(6 if quick else 8, quick)
        created = create_actors(1 if quick else 4)
        driven, alone, lengths = loop.run(embed(handle, quick))
    report_calls(result, times, created)
    report_batching(result, driven)
    if alone:
        report_embedder(result, alone, lengths)
    return result


async def embed(handle: Any, quick: bool) -> tuple[dict[str, Driven], Groups, list[int]]:
    """Return what the settings did, what the embedder does alone, and the questions' tokens (whole runs only).

    With Baton's environment Serve's handles work inside an event loop only.
    """
    settings = {name: SETTINGS[name] for name in (ONE, BATCHED)} if quick else SETTINGS
    driven = await handle.drive.remote(settings, 1 if quick else 2, 64)
    if quick:
        return driven, {}, []
    return driven, await handle.encode.remote(2), await handle.lengths.remote()


@contextmanager
def cluster() -> Iterator[None]:
    """Start a private Ray as the product does, without a proxy or a dashboard."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    import ray
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=128 * 1024**2,
        include_dashboard=False,
        _metrics_export_port=METRICS_PORT,
        log_to_driver=False,
        logging_level="warning",
    )
    try:
        serve.start(proxy_location="Disabled")
        yield
    finally:
        ray.shutdown()


# --- merged calls ---------------------------------------------------------------------------------------------------


def report_calls(result: Result, times: Times, created: Sequence[float]) -> None:
    """Add what merging gave, with the creation of an actor beside it."""
    gains = {way: ratio(times[way, 1, 0], times[way, 100, 0]) for way in ("actor", "task")}
    result.ratios["merged_over_single"] = gains["actor"].value
    result.ratios["task_merged_over_single"] = gains["task"].value
    creation = _milliseconds(created)
    result.ratios["actor_creation_over_merged_call"] = creation / _milliseconds(times["actor", 100, 0])
    for way, gain in gains.items():
        spent = [_milliseconds(times[way, size, 0]) for size in (1, 100)]
        measured = f"{gain}: {spent[0]:.1f} ms as 100 calls in flight together, {spent[1]:.2f} ms merged"
        met = gain.value >= GOAL_MERGED
        reason = "" if met else f"an empty call's own cost is the floor: {spent[1]:.2f} ms"
        goal = f"at least {GOAL_MERGED}x"
        result.claim(f"100 micro-tasks, Ray {way} calls: merged against single", goal, measured, met, reason=reason)
    result.notes.append(
        f"Creating an actor, to its first answer, takes {creation:.0f} ms (median of {len(created)}): as much as"
        f" {creation / _milliseconds(times['actor', 100, 0]):.0f} merged calls, so actors are kept, never made per job."
    )
    _table_calls(result, times, creation)


def _table_calls(result: Result, times: Times, creation: float) -> None:
    works = sorted({work for _, _, work in times})
    rows = []
    for way in ("actor", "task"):
        for work in works:
            single, merged = times[way, 1, work], times[way, 100, work]
            spent = [round(_milliseconds(each), 2) for each in (single, merged)]
            rows.append([f"Ray {way} calls", work, *spent, str(ratio(single, merged))])
    for (way, _, work), seconds in times.items():
        if way not in ("actor", "task"):
            rows.append(
                [f"Ray {way}", work, round(_milliseconds(seconds), 2), "-", str(ratio(seconds, times["actor", 100, 0]))]
            )
    rows.append(["creating the actor, once", "-", "-", round(creation, 1), "-"])
    columns = ["way", "work per micro-task (µs)", "100 calls (ms)", "one merged call (ms)", "gain"]
    result.table("100 micro-tasks as 100 calls and as one, medians", columns, rows)
    sizes = sorted({size for _, size, work in times if work == 0})
    if len(sizes) > 2:
        series = {
            f"Ray {way} calls": [_milliseconds(times[way, size, 0]) for size in sizes] for way in ("actor", "task")
        }
        axes = {"xlabel": "micro-tasks per call", "ylabel": "ms for 100 micro-tasks", "log": "xy"}
        result.plot("100 micro-tasks: what merging saves", "line", sizes, series, **axes)


def _milliseconds(seconds: Sequence[float]) -> float:
    return float(np.median(seconds)) * 1000


# --- batches of questions -------------------------------------------------------------------------------------------


def report_batching(result: Result, driven: dict[str, Driven]) -> None:
    """Add throughput and latency of each setting at 32 in flight."""
    single, batched = driven[ONE], driven[BATCHED]
    faster = ratio(batched.throughput, single.throughput)
    tail = ratio(single.latencies, batched.latencies, 99)
    result.ratios["batched_over_single_throughput"] = faster.value
    result.ratios["single_over_batched_p99"] = tail.value
    rows = [_row(name, each, single) for name, each in driven.items()]
    columns = ["setting", "questions/s", "to size 1", "p50 (ms)", "p99 (ms)", "CPU per question (ms)", "mean batch"]
    result.table("Questions embedded through the retriever's batching, 32 in flight, e5-small", columns, rows)
    if len(driven) > 2:
        p99 = {"p99": [percentiles(each.latencies)["p99"] for each in driven.values()]}
        result.plot("Embedding at 32 in flight", "bar", list(driven), p99, ylabel="p99 (ms)")
        result.lever("Dynamic batching of questions (16 against 1)", f"{faster} throughput, p99 {tail} lower")
        for name in list(driven)[2:]:
            result.lever(f"Embedding with {name}", _against(driven[name], batched))


def _row(name: str, each: Driven, single: Driven) -> list[Any]:
    found = percentiles(each.latencies)
    return [
        name,
        round(float(np.median(each.throughput)), 1),
        str(ratio(each.throughput, single.throughput)),
        round(found["p50"]),
        round(found["p99"]),
        round(_milliseconds(each.cpu), 1),
        round(float(np.mean(each.batches)), 1),
    ]


def _against(each: Driven, shipped: Driven) -> str:
    throughput = ratio(each.throughput, shipped.throughput)
    tail = ratio(shipped.latencies, each.latencies, 99)
    return f"{throughput} the throughput of the shipped setting; its p99 is {1 / tail.value:.2f} of the shipped one's"


def report_embedder(result: Result, alone: Groups, lengths: Sequence[int]) -> None:
    """Add what the embedder does by itself, and what padding costs it."""
    rows = []
    for (size, by_length), found in alone.items():
        order = sorted(lengths) if by_length else lengths
        kind = "by length" if by_length else "as they come"
        rows.append([size, kind, round(float(np.median(found)), 1), round(100 * padding(order, size))])
    columns = ["group", "order", "questions/s", "padding (%)"]
    result.table("The embedder alone, one thread, groups of questions", columns, rows)
    gain: Ratio = ratio(alone[16, True], alone[16, False])
    spread = f"{min(lengths)} to {max(lengths)} tokens"
    waste = f"{100 * padding(lengths, 16):.0f} % of a batch of 16 is padding"
    result.lever("Questions of like length together (the most that packing could give)", f"{gain}: {waste} ({spread})")


def padding(lengths: Sequence[int], size: int) -> float:
    """Return the share of padded tokens when texts of these lengths run in groups of ``size``."""
    groups = [lengths[first : first + size] for first in range(0, len(lengths), size)]
    return 1 - sum(lengths) / sum(max(group) * len(group) for group in groups)
