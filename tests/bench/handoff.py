"""The hand-off: one tensor of 16 MiB through four stages, by every way there is.

The clock starts when the producer, which holds the tensor in private memory, is asked; it stops when the last stage has
read one value of every 4 KiB page and its answer has come back. In a chain each stage starts when the one before has
answered or passed the tensor on; in a fan-out three consumers get it at once. Every stage is a process of its own,
except where a side's name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tests.bench import handoff_claims as conclude
from tests.bench import handoff_report as report
from tests.bench.handoff_cluster import Cluster
from tests.bench.handoff_load import Load, shares
from tests.bench.handoff_race import ClusterSide, Contestant, Memcpy, Race
from tests.bench.handoff_rivals import Rival, rivals
from tests.bench.measure import Result

BOUNDS: dict[str, tuple[float, float]] = {
    "rest_raw_over_arena": (2, 1000),
    "rest_raw_over_by_reference": (1.2, 1000),
    "rest_raw_over_in_process": (20, 100_000),
    "in_process_memcpys": (0, 3),
    "arena_over_memcpy": (0.5, 30),
    "arena_over_empty_calls": (0.5, 4),
    "mapped": (1, 1),
}

_DEFAULT_SIDES = ("by_reference", "arena", "empty_value", "empty_reference", "in_process")
_TUNED_SIDES = (*_DEFAULT_SIDES, "arena_any_node", "actor_arena", "actor_empty")
#: Ray's compiled graphs keep their actors busy, so they race one by one, with the memcpy.
_COMPILED = ("compiled_arena", "compiled_tensor")
_SLOW = ("rest_json", "rest_json_simd", "grpc")
_FAST = ("rest_raw", "pickle", "arena_socket")
_SIZED = ("rest_raw", "by_reference", "arena", "actor_arena", "in_process", "memcpy")


def run(quick: bool) -> Result:
    """Measure; quick, only 16 MiB and what the bounds need."""
    result = Result("handoff", "The hand-off: 16 MiB of float32 through four stages")
    if quick:
        _run_quick(result)
    else:
        _run_whole(result)
    return result


def _run_quick(result: Result) -> None:
    starting = Cluster("product")
    with rivals(("rest_raw",)) as found, starting as cluster:
        race = Race()
        sides = _sides(cluster, ("by_reference", "arena", "empty_value", "in_process"))
        race.run({**found, **sides, "memcpy": Memcpy()}, rounds=6)
        report.ratios(result, race, _mapped(cluster, ("by_reference", "arena")))


def _run_whole(result: Result) -> None:
    with ExitStack() as stack:
        found = stack.enter_context(rivals((*_SLOW, *_FAST)))
        plain = _race_default(found["rest_raw"])
        cluster = stack.enter_context(Cluster("tuned"))
        race = _race_tuned(found, cluster)
        store = cluster.ask("store", 30)
        load = Load(cluster)
        load.run(("by_reference", "arena", "in_process"), seconds=2.5)
        profiles = shares(cluster, found["rest_json"])
        report.ratios(result, race, _mapped(cluster, report.APART[:3]))
    report.transit(result, race, plain)
    report.sizes(result, race, _SIZED)
    report.parts(result, race, store)
    report.load(result, load)
    report.cpu_shares(result, profiles)
    conclude.levers(result, race, plain, load, store)
    conclude.claims(result, race, load, profiles)


def _race_default(raw: Rival) -> Race:
    """Race on a cluster with Ray's and Serve's defaults."""
    race = Race()
    with Cluster("plain") as cluster:
        race.run({"rest_raw": raw, "memcpy": Memcpy(), **_sides(cluster, _DEFAULT_SIDES)}, rounds=6)
    return race


def _race_tuned(found: dict[str, Rival], cluster: Cluster) -> Race:
    race, memcpy = Race(), Memcpy()
    sides = _sides(cluster, _TUNED_SIDES)
    race.run({**{name: found[name] for name in _FAST}, **sides, "memcpy": memcpy}, rounds=12)
    race.run({**{name: found[name] for name in _SLOW}, "memcpy": memcpy}, rounds=3, warmup=1)
    race.note("arena", cluster.ask("account", "arena")["accounts"])
    everyone: dict[str, Contestant] = {**found, **sides, "memcpy": memcpy}
    sized = {name: everyone[name] for name in _SIZED}
    for mib, rounds in ((1, 15), (64, 4)):
        race.run(sized, rounds, mib=mib, graphs=("fan",))
        race.run({"rest_json": found["rest_json"]}, max(2, rounds // 3), warmup=1, mib=mib, graphs=("fan",))
    for name, side in _sides(cluster, _COMPILED).items():
        try:
            race.run({name: side, "memcpy": memcpy}, rounds=12)
        except RuntimeError as error:  # experimental
            print(f"  {name} is left out: {error}", flush=True)
    return race


def _sides(cluster: Cluster, names: Sequence[str]) -> dict[str, Contestant]:
    return {name: ClusterSide(cluster, name) for name in names}


def _mapped(cluster: Cluster, sides: Sequence[str]) -> float:
    """Return the share of hops whose consumer found the tensor in shared memory, read-only, and not in a copy."""
    replies = [reply for side in sides for reply in cluster.transit(side, "fan", 16, "inspect")[1].get("replies", ())]
    mapped = [reply["mapped"] for reply in replies]
    return sum(mapped) / len(mapped)
