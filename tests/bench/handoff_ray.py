"""Ray's side of the hand-off bench, a process per cluster: `python -m tests.bench.handoff_ray <mode>`.

Modes: ``plain`` has Ray's and Serve's defaults, ``product`` the product's environment, ``tuned`` more than that.

It plays the gateway. Commands come as lines of JSON on standard input, answers leave as lines of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from app.ops.local_cluster import ENVIRONMENT
from tests.bench.handoff_tensor import clocked, private_table

#: What the tuned cluster has beyond the product's environment.
TUNED = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_preallocate_plasma_memory": "1"}
_STORE_BYTES = 2 << 30
_TRANSIT_SECONDS = 60
_APPLICATION = "handoff"


def _environment(mode: str) -> dict[str, str]:
    if mode == "plain":
        return {name: value for name, value in ENVIRONMENT.items() if not name.startswith("RAY_SERVE_")}
    return ENVIRONMENT | (TUNED if mode == "tuned" else {})


def start_cluster(mode: str) -> None:
    """Start a private Ray and Serve, and the four stages as deployments."""
    os.environ.update(_environment(mode))
    import ray
    from ray import serve

    ray.init(
        address="local", num_cpus=16, object_store_memory=_STORE_BYTES, include_dashboard=False,
        log_to_driver=False, logging_level="error",
    )  # fmt: skip
    serve.start(proxy_location="Disabled")
    from tests.bench.handoff_sides import application

    serve.run(application(), name=_APPLICATION, route_prefix=None)


class Gateway:
    """Carries out the commands."""

    def __init__(self) -> None:
        from app.deployments.runner import settle
        from tests.bench.handoff_sides import Sides

        self._collections = [clocked(gc.collect)[1]]
        settle()
        self._collections.append(clocked(gc.collect)[1])
        self._sides = Sides(_APPLICATION)

    async def transit(self, side: str, graph: str, mib: int, work: str = "touch") -> dict[str, Any]:
        """Pass the tensor through the graph once."""
        chosen = self._sides[side]
        async with asyncio.timeout(_TRANSIT_SECONDS):
            start = time.perf_counter()
            reply = await chosen.transit(graph, mib, work)
        return {"seconds": time.perf_counter() - start} | reply

    async def load(self, side: str, in_flight: int, seconds: float, work: str = "touch") -> dict[str, Any]:
        """Keep ``in_flight`` fan-outs going; returns each one's seconds and the collector's pauses by stage."""
        chosen = self._sides[side]
        found: list[float] = []
        end = time.perf_counter() + seconds

        async def client() -> None:
            while (start := time.perf_counter()) < end:
                await chosen.transit("fan", 16, work)
                found.append(time.perf_counter() - start)

        await self._accounts(side)
        await asyncio.gather(*(client() for _ in range(in_flight)))
        return {"seconds": found, "pauses": [stage["pauses"] for stage in await self._accounts(side)]}

    async def _accounts(self, side: str) -> list[dict[str, Any]]:
        """Return the account of each of the side's stages, and the gateway's own."""
        sides = [self._sides[side]] if side == "in_process" else [self._sides[side], self._sides["in_process"]]
        return [account for one in sides for account in await one.account()]

    async def store(self, rounds: int) -> dict[str, Any]:
        """Put the payload into the object store and get it from there, as a stage does behind Serve's back."""
        import ray

        found: dict[str, list[float]] = {"put": [], "get": []}
        for _ in range(rounds):
            ref, seconds = clocked(ray.put, private_table(16))
            found["put"].append(seconds)
            found["get"].append(clocked(ray.get, ref)[1])
            del ref
        return found

    async def collections(self) -> dict[str, Any]:
        """Return the seconds of a full collection before and after the product's replicas settle."""
        return {"seconds": self._collections}

    async def account(self, side: str) -> dict[str, Any]:
        """Return the account of each of the side's stages."""
        return {"accounts": await self._sides[side].account()}

    async def close(self) -> dict[str, Any]:
        """Let the sides clean up, and Serve its replicas."""
        from ray import serve

        await self._sides.close()
        await serve.shutdown_async()
        return {}


async def converse(mode: str, answer: Callable[[Any], None]) -> None:
    """Answer commands until standard input ends."""
    gateway = Gateway()
    answer({"ready": mode})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *arguments = json.loads(line)
        work: Callable[..., Awaitable[Any]] = getattr(gateway, command)
        try:
            answer(await work(*arguments))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
    await gateway.close()


def main(mode: str) -> None:
    # Ray and its children write to standard output whatever they like: answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    start_cluster(mode)
    import ray

    try:
        uvloop.run(converse(mode, lambda reply: print(json.dumps(reply), file=answers)))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
