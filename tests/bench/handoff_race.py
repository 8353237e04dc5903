"""The races of the hand-off bench: who takes part, what each run gave."""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from tests.bench.handoff_cluster import Cluster
from tests.bench.handoff_tensor import GRAPHS, clocked, private_array
from tests.bench.measure import Ratio, interleave, ratio

_MADV_HUGEPAGE = 14


class Contestant(Protocol):
    """One way through the graph; returns the seconds and the stages' own account."""

    def transit(self, graph: str, mib: int) -> tuple[float, dict[str, Any]]: ...


class Memcpy:
    """One copy of the tensor, into memory that was written before."""

    def __init__(self) -> None:
        self._targets: dict[int, np.ndarray] = {}

    def transit(self, graph: str, mib: int) -> tuple[float, dict[str, Any]]:
        source = private_array(mib)
        if mib not in self._targets:
            self._targets[mib] = np.full_like(source, 1)
        return clocked(np.copyto, self._targets[mib], source)[1], {}


@dataclass
class ClusterSide:
    """One of Baton's sides."""

    cluster: Cluster
    side: str

    def transit(self, graph: str, mib: int) -> tuple[float, dict[str, Any]]:
        return self.cluster.transit(self.side, graph, mib)


@dataclass
class Race:
    """Seconds by side, graph and MiB, and what the stages said of their own part."""

    seconds: dict[tuple[str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    parts: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def run(
        self,
        contestants: Mapping[str, Contestant],
        rounds: int,
        *,
        warmup: int = 2,
        mib: int = 16,
        graphs: Sequence[str] = GRAPHS,
    ) -> None:
        """Let the contestants take turns; may be called again to add to what is there."""

        def once(name: str, graph: str) -> float:
            seconds, account = contestants[name].transit(graph, mib)
            if mib == 16:
                self.note(name, [account])
            return seconds

        for graph in graphs:
            turns: dict[Any, Callable[[], float]] = {name: partial(once, name, graph) for name in contestants}
            for name, seconds in interleave(turns, rounds, warmup=warmup).items():
                self.seconds[name, graph, mib].extend(seconds)

    def note(self, side: str, accounts: Sequence[Mapping[str, Any]]) -> None:
        """Keep the stages' own accounts of what writing and reading the payload took."""
        for account in accounts:
            for part, names in (("write", ("encode", "place")), ("read", ("decode", "map"))):
                self.parts[side][part].extend(second for name in names for second in account.get(name, ()))

    def median(self, side: str, graph: str, mib: int = 16) -> float:
        """Return the median in milliseconds."""
        return float(np.median(self.seconds[side, graph, mib])) * 1000

    def ratio(self, slow: str, fast: str, graph: str, mib: int = 16) -> Ratio:
        """Return how many times longer ``slow`` takes."""
        return ratio(self.seconds[slow, graph, mib], self.seconds[fast, graph, mib])

    def part(self, side: str, part: str) -> float:
        """Return the median milliseconds of writing (``write``) or reading (``read``) in a stage."""
        return float(np.median(self.parts[side][part])) * 1000

    def has(self, side: str, mib: int = 16) -> bool:
        """Tell whether the side took part."""
        return all((side, graph, mib) in self.seconds for graph in GRAPHS)


def huge_page_copies(rounds: int) -> dict[str, list[float]]:
    """Copy the tensor into shared memory of small and of huge pages: the copy, and a fresh mapping's first reading."""
    found: dict[str, list[float]] = {}
    source = private_array(16)
    for name, advice in (("small", None), ("huge", _MADV_HUGEPAGE)):
        fd = os.memfd_create("handoff")
        os.truncate(fd, source.nbytes)
        memory = mmap.mmap(fd, source.nbytes)
        if advice is not None:
            memory.madvise(advice)
        target = np.frombuffer(memory, np.float32).reshape(source.shape)
        target[:] = 0
        found[f"copy_{name}"] = [clocked(np.copyto, target, source)[1] for _ in range(rounds)]
        found[f"read_{name}"] = [_first_reading(fd, source, advice) for _ in range(rounds)]
        os.close(fd)
    return found


def _first_reading(fd: int, source: np.ndarray, advice: int | None) -> float:
    with_pages = mmap.mmap(fd, source.nbytes, prot=mmap.PROT_READ)
    if advice is not None:
        with_pages.madvise(advice)
    view = np.frombuffer(with_pages, np.float32).reshape(source.shape)
    return clocked(lambda: float(view[:, 0].sum()))[1]
