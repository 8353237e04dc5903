"""Load for both sides: short blocks in turn, each a closed loop of a few clients over kept-alive connections."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

from tests.bench.measure import cpu_seconds
from tests.bench.microservices_sides import Side, questions

_PATH = "/v1/chat/completions"
_WARM_REQUESTS = 24
_MOST_CLIENTS = 16


@dataclass(frozen=True)
class Load:
    """One kind of block: who is asked, under which profile, by how many clients at once."""

    side: str
    profile: str
    clients: int


@dataclass
class Found:
    """What the blocks of one kind found. ``stages`` holds the milliseconds that the replies tell of each stage."""

    seconds: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wall: float = 0.0
    cpu: float = 0.0
    blocks_cpu: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.wall

    @property
    def cpu_milliseconds(self) -> float:
        """CPU milliseconds per request, over all processes of the side."""
        return self.cpu / len(self.seconds) * 1000


class Client:
    """Asks questions of the sides."""

    def __init__(self, session: aiohttp.ClientSession, sides: Mapping[str, Side]) -> None:
        self._session = session
        self._sides = sides
        self._questions = itertools.cycle(questions())
        self.found: dict[Load, Found] = defaultdict(Found)

    async def warm(self, profiles: Sequence[str]) -> None:
        """Bring every side and each of its connections to speed."""
        for side in self._sides.values():
            for profile in profiles:
                await asyncio.gather(*(self.ask(side, profile) for _ in range(_MOST_CLIENTS)))
            for _ in range(_WARM_REQUESTS):
                await self.ask(side, "hot")

    async def ask(self, side: Side, profile: str) -> tuple[float, dict[str, float]]:
        """Ask one question; return the seconds to the reply's end and what it tells of its stages."""
        body = {"messages": [{"role": "user", "content": next(self._questions)}], "profile": profile}
        start = time.perf_counter()
        async with self._session.post(side.url + _PATH, json=body) as reply:
            raw = await reply.read()
        elapsed = time.perf_counter() - start
        told = orjson.loads(raw)
        if reply.status != 200 or told["baton"]["grounding"] is None:
            raise RuntimeError(f"{side.name} answered {reply.status}: {raw[:300]!r}")
        return elapsed, told["baton"]["stages"]

    async def block(self, load: Load, seconds: float) -> None:
        """Run one block and note what it found."""
        side, found = self._sides[load.side], self.found[load]
        cpu, start, before = cpu_seconds(side.pids), time.perf_counter(), len(found.seconds)
        await asyncio.gather(*(self._loop(side, load, start + seconds, found) for _ in range(load.clients)))
        found.wall += time.perf_counter() - start
        used = cpu_seconds(side.pids) - cpu
        found.cpu += used
        found.blocks_cpu.append(used / (len(found.seconds) - before))

    async def _loop(self, side: Side, load: Load, end: float, found: Found) -> None:
        while time.perf_counter() < end:
            elapsed, stages = await self.ask(side, load.profile)
            found.seconds.append(elapsed)
            for stage, milliseconds in stages.items():
                found.stages[stage].append(milliseconds)


async def idle_cpu(sides: Mapping[str, Side], seconds: float) -> dict[str, float]:
    """Return the share of a core that each side takes when nothing is asked."""
    before = {name: cpu_seconds(side.pids) for name, side in sides.items()}
    await asyncio.sleep(seconds)
    return {name: (cpu_seconds(side.pids) - before[name]) / seconds for name, side in sides.items()}


async def run_blocks(
    sides: Mapping[str, Side], rounds: Sequence[Sequence[tuple[Load, float]]], quick: bool
) -> tuple[dict[Load, Found], dict[str, float]]:
    """Run every round's blocks in an order drawn anew; return what was found, and the idle sides' CPU."""
    drawn = random.Random(7)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=300)
    async with aiohttp.ClientSession(connector=connector) as session:
        client = Client(session, sides)
        await client.warm(("hot",) if quick else ("lance", "hot", "paced"))
        at_rest = await idle_cpu(sides, 0.5 if quick else 3.0)
        for loads in rounds:
            for load, seconds in drawn.sample(list(loads), len(loads)):
                await client.block(load, seconds)
    return client.found, at_rest
