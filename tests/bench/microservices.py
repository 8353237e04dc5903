"""Baton against the same pipeline as microservices: end to end, with retrieval and the tensor of 16.8 MB on.

Both sides run Baton's own stage classes and API with the same configuration, documents, fake embedder and fake engine;
both are up at once and asked in turn. What differs is the way between the stages: Ray Serve with the default placements
and the shared-memory arena, or five uvicorn services behind a gateway, over kept-alive connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import uvloop

from tests.bench.measure import Ratio, Result, percentiles, ratio
from tests.bench.microservices_load import Found, Load, run_blocks
from tests.bench.microservices_sides import RATES, TOKENS, both_sides

#: Services over Baton, at one request in flight.
BOUNDS = {"micro_over_baton_p50": (0.7, 20.0), "micro_over_baton_cpu": (0.4, 20.0)}
_CLIENTS = (1, 4, 16)
_STAGES = ("guardrail", "retriever", "assembler", "generator", "postprocessor", "total")
_NAMES = {
    "baton": "Baton",
    "services": "microservices",
    "whole": "microservices, whole payload to every stage that reads it",
    "one": "all stages in one process (floor)",
}
_GOAL = 0.46
Everything = Mapping[Load, Found]


def run(quick: bool) -> Result:
    """Start both sides, load them in turn, say what was found."""
    with both_sides(quick) as sides, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found, idle = runner.run(run_blocks(sides, _rounds(quick), quick))
    result = Result("microservices", "The whole pipeline: Baton and the same stages as microservices")
    _note_ratios(result, found)
    if not quick:
        _tables(result, found)
        _plots(result, found)
        _claims(result, found)
        _notes(result, found, idle)
    return result


# --- what is run ------------------------------------------------------------------------------------------------------


def _load(side: str, clients: int, profile: str = "hot") -> Load:
    return Load(side, profile, clients)


def _rounds(quick: bool) -> list[list[tuple[Load, float]]]:
    """Return each round's blocks and their seconds."""
    pair = ("baton", "services")
    one = [(_load(side, 1), 1.2) for side in pair]
    if quick:
        return [one] * 3
    many = [(_load(side, clients), 1.2) for side in pair for clients in _CLIENTS[1:]]
    rest = [(_load(side, 1, profile), 1.2) for side in pair for profile in ("lance", "paced")]
    rest += [(_load(side, 1), 0.8) for side in ("whole", "one")] + [(_load("one", 16), 0.8)]
    return [one + (many if number % 2 else []) + (rest if number % 4 == 2 else []) for number in range(12)]


# --- what is said of it -----------------------------------------------------------------------------------------------


def _over(found: Everything, clients: int, share: float = 50, profile: str = "hot") -> Ratio:
    slow, fast = (found[_load(side, clients, profile)].seconds for side in ("services", "baton"))
    return ratio(slow, fast, share)


def _note_ratios(result: Result, found: Everything) -> None:
    slow, fast = (found[_load(side, 1)].blocks_cpu for side in ("services", "baton"))
    result.ratios["micro_over_baton_p50"] = _over(found, 1).value
    result.ratios["micro_over_baton_cpu"] = ratio(slow, fast).value
    for clients in _CLIENTS:
        if _load("baton", clients) in found:
            result.ratios[f"micro_over_baton_p99_at_{clients}"] = _over(found, clients, 99).value
            rates = [found[_load(side, clients)].rate for side in ("baton", "services")]
            result.ratios[f"baton_over_micro_throughput_at_{clients}"] = rates[0] / rates[1]


def _tables(result: Result, found: Everything) -> None:
    columns = ["side", "in flight", "requests", "p50 ms", "p99 ms", "requests/s", "CPU ms/request"]
    hot = [load for load in found if load.profile == "hot"]
    rows = [
        _row(load, found[load]) for load in sorted(hot, key=lambda load: (load.clients, list(_NAMES).index(load.side)))
    ]
    engine = _engine_milliseconds("quick-engine")
    result.table(f"End to end, {engine:.0f} ms of it the engine's fixed pace ({TOKENS} tokens)", columns, rows)
    rows = [_stage_row(load, found[load]) for load in hot if load.clients == 1]
    result.table("Median of each stage as the gateway sees it, ms, one in flight", ["side", *_STAGES], rows)
    kinds = {
        "lance": f"LanceDB on disk, hybrid search; engine {engine:.0f} ms",
        "paced": f"passages in memory; engine {_engine_milliseconds('paced-engine'):.0f} ms",
    }
    rows = []
    for profile, kind in kinds.items():
        for side in ("baton", "services"):
            load = _load(side, 1, profile)
            rows.append([kind, *_row(load, found[load])])
    result.table("Other stores and engines, one in flight", ["what", *columns], rows)


def _row(load: Load, found: Found) -> list[object]:
    times = percentiles(found.seconds)
    figures = [round(value, 1) for value in (times["p50"], times["p99"], found.rate, found.cpu_milliseconds)]
    return [_NAMES[load.side], load.clients, len(found.seconds), *figures]


def _stage_row(load: Load, found: Found) -> list[object]:
    return [_NAMES[load.side], *(round(float(np.median(found.stages[stage])), 1) for stage in _STAGES)]


def _engine_milliseconds(model: str) -> float:
    return RATES[model] * TOKENS * 1000


def _plots(result: Result, found: Everything) -> None:
    series = {
        f"{_NAMES[side]}, {share}": [percentiles(found[_load(side, clients)].seconds)[share] for clients in _CLIENTS]
        for side in ("services", "baton")
        for share in ("p50", "p99")
    }
    title = "The whole pipeline, end to end"
    result.plot(title, "line", _CLIENTS, series, xlabel="requests in flight", ylabel="ms")


def _claims(result: Result, found: Everything) -> None:
    floor = found[_load("one", 1)]
    for clients in _CLIENTS:
        at = _over(found, clients, 99)
        p99 = {side: percentiles(found[_load(side, clients)].seconds)["p99"] for side in ("services", "baton")}
        less = 1 - 1 / at.value
        result.claim(
            f"P99 of the pipeline against microservices, {clients} in flight",
            "at least 46 % lower",
            f"{p99['services']:.0f} → {p99['baton']:.0f} ms, {less:.0%} lower "
            f"({1 - 1 / at.low:.0%} to {1 - 1 / at.high:.0%})",
            less >= _GOAL,
            claimed="312 → 168 ms (46 % lower)" if clients == 1 else "",
            reason="" if less >= _GOAL else _reason(found, clients, floor),
        )


def _reason(found: Everything, clients: int, floor: Found) -> str:
    used, floors = found[_load("baton", clients)].cpu_milliseconds, percentiles(floor.seconds)
    return (
        f"the stages' own work in one process, with no hop at all, takes {floors['p50']:.0f} ms "
        f"(p99 {floors['p99']:.0f}) and {floor.cpu_milliseconds:.0f} ms of CPU; Baton uses {used:.0f} ms of CPU"
    )


def _notes(result: Result, found: Everything, idle: Mapping[str, float]) -> None:
    one = percentiles(found[_load("one", 1)].seconds)["p50"]
    extra = {side: percentiles(found[_load(side, 1)].seconds)["p50"] - one for side in ("services", "baton")}
    result.ratios["handoff_share_micro_over_baton"] = extra["services"] / extra["baton"]
    result.notes += [
        f"Over the same stages in one process ({one:.0f} ms p50, of it {_engine_milliseconds('quick-engine'):.0f} the "
        f"engine's fixed pace) Baton adds {extra['baton']:.0f} ms and the microservices add {extra['services']:.0f}.",
        f"p50 at one in flight: {_over(found, 1)}; with LanceDB {_over(found, 1, 50, 'lance')}; with the engine at "
        f"20 ms per token {_over(found, 1, 50, 'paced')} (services over Baton).",
        f"With nothing asked, Baton's processes (Ray's own among them) take {idle['baton']:.2f} of a core, the "
        f"services {idle['services']:.2f}: that is part of each one's CPU per request, and taken from the other one.",
        "The rival sends the guardrail and the assembler only the passages that they read, asks the generator for the "
        "whole answer at once and judges it in one call; only the postprocessor gets the payload a second time.",
    ]
