"""Rising load, and where the stages' CPU time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.handoff_cluster import Cluster
from tests.bench.handoff_profile import Profile, profile
from tests.bench.handoff_rivals import Rival
from tests.bench.measure import percentiles

IN_FLIGHT = (1, 4, 16)
_PROFILE_SECONDS = 4


@dataclass(frozen=True)
class Level:
    """One side under one load."""

    side: str
    in_flight: int
    per_second: float
    milliseconds: dict[str, float]
    pauses: tuple[float, ...]

    @property
    def longest_pause(self) -> float:
        """Return the collector's longest pause in any stage, in milliseconds."""
        return 1000 * max(self.pauses, default=0.0)


class Load:
    """Fan-outs of 16 MiB with more and more in flight."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.levels: list[Level] = []
        self.collections: list[float] = []

    def run(self, sides: Sequence[str], seconds: float) -> None:
        """Load each side at each level for some seconds."""
        for in_flight in IN_FLIGHT:
            for side in sides:
                self.levels.append(self._level(side, in_flight, seconds))
        self.collections = self._cluster.ask("collections")["seconds"]

    def _level(self, side: str, in_flight: int, seconds: float) -> Level:
        self._cluster.ask("load", side, in_flight, 0.5)  # more load takes more slots, which are cold at first
        start = time.perf_counter()
        found = self._cluster.ask("load", side, in_flight, seconds)
        rate = len(found["seconds"]) / (time.perf_counter() - start)
        pauses = tuple(pause for stage in found["pauses"] for pause in stage)
        return Level(side, in_flight, rate, percentiles(found["seconds"]), pauses)

    def level(self, side: str, in_flight: int) -> Level:
        """Return what was found at one level."""
        return next(level for level in self.levels if (level.side, level.in_flight) == (side, in_flight))


def shares(cluster: Cluster, json_rival: Rival) -> dict[tuple[str, str], Profile]:
    """Profile JSON and the arena, with stages that only read every page and with stages that also compute."""
    found = {}
    pids = [account["pid"] for account in cluster.ask("account", "arena")["accounts"]]
    for work in ("touch", "ground"):
        seconds = _PROFILE_SECONDS + 3
        found["rest_json", work] = profile(json_rival.pids, _transits(json_rival, work, seconds), _PROFILE_SECONDS)
        found["arena", work] = profile(pids, _load(cluster, work, seconds), _PROFILE_SECONDS)
    return found


def _transits(rival: Rival, work: str, seconds: float) -> Callable[[], Any]:
    def load() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            rival.transit("fan", 16, work)

    return load


def _load(cluster: Cluster, work: str, seconds: float) -> Callable[[], Any]:
    return lambda: cluster.ask("load", "arena", 1, seconds, work)
