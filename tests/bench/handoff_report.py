"""What the hand-off bench says: tables and plots of its races."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.bench.handoff_load import Load
from tests.bench.handoff_profile import Profile
from tests.bench.handoff_race import Race
from tests.bench.measure import Result

SIDES = {
    "rest_json": "(a) REST, JSON with base64",
    "rest_json_simd": "REST, JSON with vectorised base64",
    "grpc": "(c) gRPC, protobuf bytes",
    "rest_raw": "(b) REST, raw bytes",
    "pickle": "(e) pickle over TCP",
    "by_reference": "Serve by reference, Ray's object store",
    "arena_any_node": "arena, Serve calls to any node",
    "arena": "arena, Serve calls, local first (default)",
    "actor_arena": "arena, raw actor calls",
    "compiled_tensor": "Ray's compiled graph, tensor in its channel",
    "compiled_arena": "arena, Ray's compiled graph",
    "arena_socket": "arena, plain sockets without Ray",
    "in_process": "all stages in the gateway's process",
    "empty_reference": "empty Serve calls by reference",
    "empty_value": "empty Serve calls by value",
    "actor_empty": "empty raw actor calls",
    "memcpy": "(d) one memcpy",
}
#: Baton's ways with a process per stage.
APART = ("by_reference", "arena", "actor_arena", "compiled_tensor", "compiled_arena")
_GRAPH_NAMES = {"chain": "chain of four", "fan": "fan-out to three"}
_PLOTTED = ("rest_json", "grpc", "rest_raw", "pickle", "by_reference", "arena", "actor_arena", "compiled_arena",
            "in_process", "memcpy")  # fmt: skip


def rounded(value: float) -> float:
    """Return the value with three digits that mean something."""
    return float(f"{value:.3g}")


def best_apart(race: Race, graph: str) -> str:
    """Return the fastest of Baton's ways with a process per stage."""
    return min((side for side in APART if race.has(side)), key=lambda side: race.median(side, graph))


def ratios(result: Result, race: Race, mapped: float) -> None:
    """Set the ratios that the bounds check."""
    found = {
        "rest_raw_over_arena": race.ratio("rest_raw", "arena", "chain"),
        "rest_raw_over_by_reference": race.ratio("rest_raw", "by_reference", "chain"),
        "rest_raw_over_in_process": race.ratio("rest_raw", "in_process", "chain"),
        "in_process_memcpys": race.ratio("in_process", "memcpy", "chain"),
        "arena_over_memcpy": race.ratio("arena", "memcpy", "chain"),
        "arena_over_empty_calls": race.ratio("arena", "empty_value", "chain"),
    }
    result.ratios |= {name: each.value for name, each in found.items()} | {"mapped": mapped}


def transit(result: Result, race: Race, plain: Race) -> None:
    """Add the tables of the whole transit, one per graph, and their plot."""
    for graph, name in _GRAPH_NAMES.items():
        columns = ["path", "p50 (ms)", "p99 (ms)", "in memcpys", "JSON (a) takes", "raw bytes (b) take"]
        rows = [_row(race, side, graph) for side in SIDES if race.has(side)]
        result.table(f"16 MiB, {name}, Serve in throughput mode, object store preallocated", columns, rows)
    columns = ["path", "chain p50 (ms)", "in memcpys", "fan-out p50 (ms)", "in memcpys", "raw bytes (b) take, chain"]
    rows = []
    for side in (side for side in SIDES if plain.has(side)):
        cells: list[Any] = [SIDES[side]]
        for graph in _GRAPH_NAMES:
            cells += [rounded(plain.median(side, graph)), rounded(plain.ratio(side, "memcpy", graph).value)]
        rows.append([*cells, str(plain.ratio("rest_raw", side, "chain"))])
    result.table("16 MiB with Ray's and Serve's defaults", columns, rows)
    result.notes.append("Compiled graphs keep their actors busy: they raced after the others, with the same memcpy.")
    sides = [side for side in _PLOTTED if race.has(side)]
    series = {name: [race.median(side, graph) for side in sides] for graph, name in _GRAPH_NAMES.items()}
    labels = [SIDES[side] for side in sides]
    result.plot("16 MiB through four stages", "bar", labels, series, ylabel="milliseconds, p50", log=True)


def _row(race: Race, side: str, graph: str) -> list[Any]:
    p99 = float(np.percentile(race.seconds[side, graph, 16], 99)) * 1000
    against = [str(race.ratio(slow, side, graph)) for slow in ("memcpy", "rest_json", "rest_raw")]
    memcpys = str(race.ratio(side, "memcpy", graph))
    return [SIDES[side], rounded(race.median(side, graph)), rounded(p99), memcpys, *against[1:]]


def sizes(result: Result, race: Race, sides: Sequence[str]) -> None:
    """Add the fan-out by size."""
    names = ["rest_json", *sides]
    mibs = (1, 16, 64)
    columns = ["path", *(f"{mib} MiB p50 (ms)" for mib in mibs), *(f"raw bytes take, {mib} MiB" for mib in mibs)]
    rows = []
    for side in names:
        medians = [rounded(race.median(side, "fan", mib)) for mib in mibs]
        rows.append([SIDES[side], *medians, *(str(race.ratio("rest_raw", side, "fan", mib)) for mib in mibs)])
    result.table("Fan-out by size", columns, rows)
    series = {SIDES[side]: [race.median(side, "fan", mib) for mib in mibs] for side in names}
    result.plot("Fan-out by size", "line", mibs, series, xlabel="MiB", ylabel="milliseconds, p50", log=True)


def parts(result: Result, race: Race, store: Mapping[str, Sequence[float]]) -> None:
    """Add what writing and reading the payload takes in the stages, without the way between them."""
    rows: list[list[Any]] = []
    for side in ("rest_json", "rest_json_simd", "arena"):
        rows.append([SIDES[side], rounded(race.part(side, "write")), rounded(race.part(side, "read"))])
    put, get = (float(np.median(store[part])) * 1000 for part in ("put", "get"))
    rows.append(["Ray's object store, put and get", rounded(put), rounded(get)])
    result.table(
        "Writing the payload, and reading it in one consumer (16 MiB)", ["path", "write (ms)", "read (ms)"], rows
    )


def load(result: Result, found: Load) -> None:
    """Add the fan-out under rising load."""
    columns = ["path", "in flight", "transits", "transits per second", "p50 (ms)", "p99 (ms)", "p99.9 (ms)",
               "collector's pauses", "longest (ms)"]  # fmt: skip
    rows = []
    for level in found.levels:
        times = level.milliseconds
        figures = [rounded(level.per_second), *(rounded(times[name]) for name in ("p50", "p99", "p999"))]
        pauses = [len(level.pauses), rounded(level.longest_pause)]
        rows.append([SIDES[level.side], level.in_flight, times["count"], *figures, *pauses])
    result.table("Fan-out of 16 MiB under rising load", columns, rows)
    sides = list(dict.fromkeys(level.side for level in found.levels))
    x = sorted({level.in_flight for level in found.levels})
    series = {SIDES[side]: [found.level(side, each).milliseconds["p99"] for each in x] for side in sides}
    result.plot("Rising load", "line", x, series, xlabel="transits in flight", ylabel="milliseconds, p99", log=True)
    result.notes.append("With fewer than 1,000 transits p99.9 is close to the slowest one.")


def cpu_shares(result: Result, found: Mapping[tuple[str, str], Profile]) -> None:
    """Add the share of the stages' CPU time that went into copying and serialising."""
    works = {"touch": "read one value per page", "ground": "also do the postprocessor's MaxSim, 64 tokens"}
    rows = [
        [SIDES[side], works[work], str(each), each.samples] for (side, work), each in found.items()
    ]  # fmt: skip
    columns = ["path", "what consumers do", "share copying and serialising", "samples"]
    result.table("CPU of the stages' processes, fan-out, by py-spy", columns, rows)
