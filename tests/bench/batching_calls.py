"""A hundred micro-tasks on Ray: a call for each against calls that carry many."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ray

from tests.bench.measure import interleave

TASKS = 100
#: Micro-tasks that one call carries; the first is no merging, the last is all of it.
MERGED = (1, 4, 20, 100)
#: Microseconds that a micro-task computes for, beside its checksum.
WORK = (0, 1000)
TEXTS = [f"micro-task {number}: {'x' * 240}" for number in range(TASKS)]

#: Seconds for all micro-tasks, one value a round, by (way, tasks per call, microseconds of work).
Times = dict[tuple[str, int, int], list[float]]


def compute(texts: Sequence[str], work: int) -> list[int]:
    """Do one micro-task per text."""
    found = []
    for text in texts:
        end = time.perf_counter() + work / 1e6
        found.append(zlib.crc32(text.encode()))
        while time.perf_counter() < end:
            pass
    return found


@ray.remote(num_cpus=0)
class Worker:
    """Does micro-tasks."""

    def compute(self, texts: Sequence[str], work: int) -> list[int]:
        return compute(texts, work)


def measure_calls(rounds: int, quick: bool) -> Times:
    """Time all ways in turn. Calls of one round are all sent before the first answer is awaited."""
    actor = Worker.remote()
    submit = {"actor": actor.compute.remote, "task": ray.remote(num_cpus=1)(compute).remote}
    ways: list[tuple[str, int, int]] = [(way, size, 0) for way in submit for size in ((1, TASKS) if quick else MERGED)]
    if not quick:
        ways += [(way, size, work) for way in submit for size in (1, TASKS) for work in WORK[1:]]
    contestants = {repr(key): _all(submit[key[0]], *key[1:]) for key in ways}
    if not quick:
        contestants["waiting"] = _one_by_one(submit["actor"])
    seconds = interleave(contestants, rounds, warmup=1)
    ray.kill(actor)
    times = {key: seconds[repr(key)] for key in ways}
    return times | ({} if quick else {("actor, each awaited", 1, 0): seconds["waiting"]})


def _all(submit: Callable[..., Any], size: int, work: int) -> Callable[[], None]:
    def contestant() -> None:
        parts = [submit(TEXTS[start : start + size], work) for start in range(0, TASKS, size)]
        if sum(map(len, ray.get(parts))) != TASKS:
            raise RuntimeError("micro-tasks were lost")

    return contestant


def _one_by_one(submit: Callable[..., Any]) -> Callable[[], None]:
    def contestant() -> None:
        for text in TEXTS:
            ray.get(submit([text], 0))

    return contestant


def create_actors(count: int) -> list[float]:
    """Return the seconds from an actor's creation to its first answer."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        actor = Worker.remote()
        ray.get(actor.compute.remote(TEXTS[:1], 0))
        seconds.append(time.perf_counter() - start)
        ray.kill(actor)
    return seconds
