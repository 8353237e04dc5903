"""What the hand-off bench concludes: goals beside what was measured, and a line per lever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.bench.handoff_load import Load
from tests.bench.handoff_profile import Profile
from tests.bench.handoff_race import Race, huge_page_copies
from tests.bench.handoff_report import SIDES, best_apart
from tests.bench.measure import Ratio, Result, ratio

_HOP_GOAL_MILLISECONDS = 0.15
_SHARE_GOAL = 3.8
#: A pause is called visible in p99.9 from this share of it on.
_VISIBLE = 0.1


def claims(result: Result, race: Race, load: Load, shares: Mapping[tuple[str, str], Profile]) -> None:
    """Set every goal of the hand-off beside what was measured."""
    best = best_apart(race, "chain")
    for side, where in (("in_process", "stages in the gateway"), (best, "a process per stage")):
        for slow, name, goal in (("rest_json", "JSON (a)", 60), ("rest_raw", "raw bytes (b)", 8)):
            found = race.ratio(slow, side, "chain")
            reason = "" if found.value >= goal else _calls(race, side)
            claimed = "18.2x (76.5 → 4.2 ms)" if slow == "rest_json" else ""
            what = f"Best hand-off, {where} ({SIDES[side]}): times faster than {name}, chain"
            measured = f"{found}: {race.median(slow, 'chain'):.3g} → {race.median(side, 'chain'):.3g} ms"
            result.claim(what, f">= {goal}x", measured, found.value >= goal, claimed=claimed, reason=reason)
    for side in ("in_process", best, "arena"):
        found = race.ratio(side, "memcpy", "chain")
        reason = "" if found.value <= 3 else _calls(race, side)
        result.claim(f"Whole chain: {SIDES[side]}", "<= 3 memcpys", str(found), found.value <= 3, reason=reason)
    _claim_hop(result, race)
    _claim_share(result, shares)
    _claim_pauses(result, load)


def _calls(race: Race, side: str) -> str:
    """Say what the calls alone take."""
    whole, copy, sockets = (race.median(each, "chain") for each in (side, "memcpy", "arena_socket"))
    empty = {"actor_arena": "actor_empty", "arena": "empty_value", "by_reference": "empty_reference"}.get(side)
    floor = "its channels' calls are all but the copy"
    if empty is not None:
        floor = f"the four calls with nothing in them take {race.median(empty, 'chain'):.3g} ms"
    return f"of {whole:.3g} ms one memcpy is {copy:.3g}; {floor}. Over plain sockets the same takes {sockets:.3g} ms"


def _claim_hop(result: Result, race: Race) -> None:
    read, json = race.part("arena", "read"), race.part("rest_json", "read") + race.part("rest_json", "write")
    met = read <= _HOP_GOAL_MILLISECONDS
    reason = "" if met else "Arrow's reader parses the schema of the stream; the mapping itself is made once"
    measured = f"{json:.3g} → {read:.3g} ms"
    what = "Serialising (JSON) or mapping (arena) per consumer hop"
    result.claim(what, f"<= {_HOP_GOAL_MILLISECONDS} ms", measured, met, claimed="38.4 → 0.15 ms", reason=reason)


def _claim_share(result: Result, shares: Mapping[tuple[str, str], Profile]) -> None:
    before, after, bare = (shares[key] for key in (("rest_json", "ground"), ("arena", "ground"), ("arena", "touch")))
    met = after.share <= _SHARE_GOAL
    reason = "" if met else (
        f"one copy into the arena and the pickles of the calls remain; with consumers that only read pages, and "
        f"compute nothing, the share is {bare}"
    )  # fmt: skip
    measured = f"{before} → {after}"
    what = "CPU share of copying and serialising, JSON → arena, consumers compute MaxSim"
    result.claim(what, f"<= {_SHARE_GOAL} %", measured, met, claimed="68 → 3.8 %", reason=reason)


def _claim_pauses(result: Result, load: Load) -> None:
    for side in dict.fromkeys(level.side for level in load.levels):
        levels = [level for level in load.levels if level.side == side]
        worst = max(levels, key=lambda level: level.longest_pause / level.milliseconds["p999"])
        pause, tail = worst.longest_pause, worst.milliseconds["p999"]
        met = pause <= _VISIBLE * tail
        what = f"Garbage collection, {SIDES[side]}: longest pause beside p99.9, worst of 1, 4 and 16 in flight"
        reason = "" if met else f"a full collection of a replica's heap; {_frozen(load)}"
        result.claim(what, "not visible", f"{pause:.3g} ms beside {tail:.3g} ms", met, reason=reason)


def _frozen(load: Load) -> str:
    before, after = (1000 * seconds for seconds in load.collections)
    return f"in the gateway it takes {before:.3g} ms, and {after:.2g} ms once `gc.freeze()` has set the imports aside"


def levers(result: Result, race: Race, plain: Race, load: Load, store: Mapping[str, Sequence[float]]) -> None:
    """Say what each lever gave."""
    result.lever("`gc.freeze()` after the start", f"a full collection of objects: {_frozen(load)}")
    _lever_cluster(result, race, plain)
    _lever_pages(result, huge_page_copies(20))
    put, get = (float(np.median(store[part])) * 1000 for part in ("put", "get"))
    placed = race.part("arena", "write")
    opened = race.part("arena", "read")
    gave = f"{placed:.3g} ms instead of {put:.3g} for `put`; opening {opened:.3g} ms, `get` {get:.3g}. "
    result.lever(
        "writing the payload in place in shared memory instead of `put`", gave + _gain(race, "by_reference", "arena")
    )
    pairs = (
        ("by value for small messages (empty calls)", "empty_reference", "empty_value"),
        ("stages in the gateway's process", "arena", "in_process"),
        ("raw actor calls between stages", "arena", "actor_arena"),
        ("empty raw actor calls instead of empty Serve calls", "empty_value", "actor_empty"),
        ("compiled graph, descriptor in its channels", "arena", "compiled_arena"),
        ("compiled graph, tensor in its channels", "arena", "compiled_tensor"),
        ("plain sockets instead of Ray's calls (not in the product)", "arena", "arena_socket"),
        ("local-first routing, one node", "arena_any_node", "arena"),
        ("vectorised base64 for the rival", "rest_json", "rest_json_simd"),
    )  # fmt: skip
    for what, slow, fast in pairs:
        result.lever(what, _gain(race, slow, fast) if race.has(fast) else "does not work on this machine")
    result.lever("uvloop, orjson", "in use on every side: Ray runs replicas on uvloop, no hop of Baton's carries JSON")


def _gain(race: Race, slow: str, fast: str) -> str:
    found = [f"{name} {race.ratio(slow, fast, graph)}" for graph, name in (("chain", "chain"), ("fan", "fan-out"))]
    return f"{SIDES[slow]} ÷ {SIDES[fast]}: {', '.join(found)}"


def _lever_cluster(result: Result, race: Race, plain: Race) -> None:
    """Compare the clusters by memcpys, since they ran one after the other."""
    for side in ("by_reference", "arena", "empty_value", "empty_reference"):
        before, after = (each.ratio(side, "memcpy", "chain") for each in (plain, race))
        what = f"Serve's throughput mode and preallocated store memory: {SIDES[side]}"
        result.lever(what, f"{before} → {after} memcpys for the chain")


def _lever_pages(result: Result, pages: Mapping[str, Sequence[float]]) -> None:
    reserved = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("HugePages_Total")
    )
    count = int(reserved.split()[1])
    copy: Ratio = ratio(pages["copy_small"], pages["copy_huge"])
    read: Ratio = ratio(pages["read_small"], pages["read_huge"])
    result.lever(
        "huge pages",
        f"{count} are reserved on this machine, and Ray's store takes only reserved ones"
        f"{': not tried there' if count == 0 else ''}. Transparent ones, advised for a memory file: small pages take "
        f"{copy} as long for a copy into them, {read} for a new mapping's first reading",
    )
