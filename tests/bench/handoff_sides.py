"""Baton's ways to pass the tensor on. Each has four calls: the producer's, and one per consumer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, Protocol

import ray
from ray import serve
from ray.dag import InputNode, MultiOutputNode
from ray.serve.handle import DeploymentHandle

from app.admission import Admission
from app.arena import ArenaReader
from app.config.pipeline import HandoffShape
from app.deployments.runner import StageRunner
from app.deployments.stages import StageDeployment
from app.handles import LocalCall, Pending, RemoteCall, RemoteRetriever, StageCall
from app.handoff import HandoffMeter
from app.messages import Retrieved
from app.metrics import MemoryMetrics, RayMetrics
from app.payloads import Payloads, PlacedRetrieved
from app.traces import Traces
from tests.bench.handoff_stages import SLOT_BYTES, SLOTS, Ask, Consumer, Producer
from tests.bench.handoff_tensor import clocked

CONSUMERS = ("second", "third", "fourth")
_THREADS = 16
_CHANNEL_BYTES = 17 << 20


class TimedPayloads(Payloads):
    """The product's payloads, with a note of how long each took to place and to open."""

    def __init__(self) -> None:
        super().__init__(HandoffShape(slots=SLOTS, slot_bytes=SLOT_BYTES))
        self.seconds: dict[str, list[float]] = {"place": [], "map": []}

    def _place(self, retrieved: Retrieved) -> PlacedRetrieved | None:
        placed, seconds = clocked(super()._place, retrieved)
        self.seconds["place"].append(seconds)
        return placed

    def open(self, payload: PlacedRetrieved) -> Retrieved:
        retrieved, seconds = clocked(super().open, payload)
        self.seconds["map"].append(seconds)
        return retrieved


class BenchStage(StageDeployment):
    """The product's deployment of a stage, around one of the bench's."""

    async def __init__(self, name: str, producer: bool, consumers: Any = ()) -> None:
        self._name = name
        self._stage = Producer() if producer else Consumer()
        self._metrics = RayMetrics()
        self._meter = HandoffMeter(self._metrics)
        self._traces = Traces(name)
        self._payloads = TimedPayloads()
        self._runner = StageRunner(self._stage, _THREADS)

    async def reconfigure(self, settings: Any) -> None:
        """There are no settings."""

    async def empty(self, before: Any = None) -> dict[str, Any]:
        return self._stage.empty(before)

    async def account(self) -> dict[str, Any]:
        seconds = {part: list(found) for part, found in self._payloads.seconds.items()}
        for found in self._payloads.seconds.values():
            found.clear()
        return self._stage.account() | seconds


def application() -> Any:
    """Return the Serve application: the producer, and the consumers bound to it so that Serve starts them too."""
    options = {
        "num_replicas": 1,
        "max_ongoing_requests": 64,
        "ray_actor_options": {"num_cpus": 0},
        "graceful_shutdown_wait_loop_s": 0.1,
    }
    deployment = serve.deployment(BenchStage)
    consumers = [deployment.options(name=name, **options).bind(name, False) for name in CONSUMERS]
    return deployment.options(name="first", **options).bind("first", True, consumers)


class Side(Protocol):
    """One way to pass the tensor on."""

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        """Pass the tensor through the graph once."""
        ...

    async def account(self) -> list[dict[str, Any]]:
        """Return each stage's process id, pauses, and seconds of placing and opening, since the last call."""
        ...

    async def close(self) -> None:
        """Clean up."""
        ...


async def _each(graph: str, calls: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Make the consumers' calls one after another (chain) or together (fan)."""
    if graph == "chain":
        return [await call() for call in calls]
    return list(await asyncio.gather(*(call() for call in calls)))


async def _through(calls: list[StageCall], graph: str, ask: Ask) -> dict[str, Any]:
    """Pass the payload through the stages as the gateway does (``app/answering.py``)."""
    producer, *consumers = calls
    payload: Pending = producer.submit(ask)

    async def read(consumer: StageCall) -> Any:
        return await consumer.submit(ask, payload).result(math.inf)

    try:
        return {"replies": await _each(graph, [partial(read, consumer) for consumer in consumers])}
    finally:
        payload.release(lingering=False)


@cache
def _handles(name: str, local_first: bool) -> list[DeploymentHandle]:
    """Return handles to the stages; Serve's own cache would give those of the other routing."""
    found = [DeploymentHandle(stage, name) for stage in ("first", *CONSUMERS)]
    for handle in found:
        handle._init(_prefer_local_routing=local_first)
    return found


class ServeSide:
    """Stages as Serve deployments."""

    def __init__(self, name: str, *, local_first: bool = True) -> None:
        self._handles = _handles(name, local_first)

    async def account(self) -> list[dict[str, Any]]:
        calls = [handle.options(method_name="account", _by_reference=False).remote() for handle in self._handles]
        return [await call for call in calls]

    async def close(self) -> None:
        """Serve ends the stages, which clean up themselves."""


class Product(ServeSide):
    """The product's way: in the arena, or with ``payloads`` None by reference in Ray's object store."""

    def __init__(self, name: str, payloads: Payloads | None, *, local_first: bool = True) -> None:
        super().__init__(name, local_first=local_first)
        metrics = MemoryMetrics()
        first, *others = self._handles
        consumers = [
            RemoteCall(stage, handle, metrics, payloads) for stage, handle in zip(CONSUMERS, others, strict=True)
        ]
        self._calls: list[StageCall] = [RemoteRetriever("first", first, metrics, payloads), *consumers]

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        return await _through(self._calls, graph, Ask(mib, work))


class InProcess:
    """All stages in the gateway's process (`placement: gateway`), in threads of their own."""

    def __init__(self) -> None:
        self._first = Producer()
        admission = Admission("bench", 1024, -1, MemoryMetrics())
        stages = [self._first, *(Consumer() for _ in CONSUMERS)]
        self._calls: list[StageCall] = [LocalCall("bench", StageRunner(stage, _THREADS), admission) for stage in stages]

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        return await _through(self._calls, graph, Ask(mib, work))

    async def account(self) -> list[dict[str, Any]]:
        return [self._first.account()]

    async def close(self) -> None:
        """Nothing is kept."""


class Empty(ServeSide):
    """The same calls with nothing in them: the floor of the calls."""

    def __init__(self, name: str, *, by_reference: bool) -> None:
        super().__init__(name)
        self._by_reference = by_reference
        calls = [handle.options(method_name="empty", _by_reference=by_reference).remote for handle in self._handles]
        self._first, *self._others = calls

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        first = self._first()
        if not self._by_reference:
            first = await first
        await _each(graph, [partial(call, first) for call in self._others])
        return {}


def start_actors() -> list[Any]:
    """Start the four stages as raw actors."""
    producer, consumer = ray.remote(num_cpus=0)(Producer), ray.remote(num_cpus=0)(Consumer)
    return [producer.remote(), *(consumer.remote() for _ in CONSUMERS)]


class Actors:
    """The payload in the arena, its descriptor in raw actor calls."""

    def __init__(self, actors: list[Any]) -> None:
        self._reader = ArenaReader()
        self._actors = actors

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        first, *others = self._actors
        ask = Ask(mib, work)
        placed = await first.place.remote(ask)
        try:
            replies = await _each(graph, [partial(actor.open.remote, ask, placed) for actor in others])
        finally:
            self._reader.release(placed)
        return {"replies": replies}

    async def account(self) -> list[dict[str, Any]]:
        return [await actor.account.remote() for actor in self._actors]

    async def close(self) -> None:
        await self._actors[0].close.remote()


class EmptyActors(Actors):
    """Raw actor calls with nothing in them."""

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        first, *others = self._actors
        before = await first.empty.remote()
        await _each(graph, [partial(actor.empty.remote, before) for actor in others])
        return {}


class CompiledGraph:
    """The one compiled graph that a set of actors can be part of at a time."""

    def __init__(self, actors: list[Any]) -> None:
        self._actors = actors
        self._kind: tuple[str, bool] | None = None
        self._built: Any = None

    def of(self, graph: str, tensor: bool) -> Any:
        """Return the graph, compiled anew when another one was asked for before."""
        if self._kind != (graph, tensor):
            self.teardown()
            self._built = self._compiled(graph, tensor)
            self._kind = (graph, tensor)
        return self._built

    def _compiled(self, graph: str, tensor: bool) -> Any:
        first, *others = self._actors
        with InputNode() as ask:
            made = (first.run if tensor else first.place).bind(ask)
            outputs: list[Any] = []
            for actor in others:
                outputs.append(actor.follow.bind(ask, made, outputs[-1] if outputs and graph == "chain" else None))
            built = outputs[-1] if graph == "chain" else MultiOutputNode(outputs)
        size = _CHANNEL_BYTES if tensor else 1 << 20
        return built.experimental_compile(enable_asyncio=True, _buffer_size_bytes=size)

    def teardown(self) -> None:
        """Set the actors free."""
        if self._built is not None:
            self._built.teardown()
        self._built = self._kind = None


class Compiled(Actors):
    """Raw actors joined by Ray's compiled graphs; the channels carry the descriptor, or (``tensor``) the payload."""

    def __init__(self, actors: list[Any], compiled: CompiledGraph, *, tensor: bool) -> None:
        super().__init__(actors)
        self._compiled = compiled
        self._tensor = tensor

    async def transit(self, graph: str, mib: int, work: str) -> dict[str, Any]:
        found = await self._compiled.of(graph, self._tensor).execute_async(Ask(mib, work))
        found = await found if graph == "chain" else [reply for one in found for reply in await one]
        if not self._tensor:
            self._reader.release(found[0]["placed"])
        return {"replies": [{name: value for name, value in reply.items() if name != "placed"} for reply in found]}

    async def close(self) -> None:
        self._compiled.teardown()


class Sides:
    """Every side by name, made when first used. The stages of the Serve application ``name`` run already."""

    def __init__(self, name: str) -> None:
        payloads, actors = cache(TimedPayloads), cache(start_actors)
        compiled = cache(lambda: CompiledGraph(actors()))
        self._makers: dict[str, Callable[[], Side]] = {
            "by_reference": lambda: Product(name, None),
            "arena": lambda: Product(name, payloads()),
            "arena_any_node": lambda: Product(name, payloads(), local_first=False),
            "empty_value": lambda: Empty(name, by_reference=False),
            "empty_reference": lambda: Empty(name, by_reference=True),
            "actor_arena": lambda: Actors(actors()),
            "actor_empty": lambda: EmptyActors(actors()),
            "compiled_arena": lambda: Compiled(actors(), compiled(), tensor=False),
            "compiled_tensor": lambda: Compiled(actors(), compiled(), tensor=True),
            "in_process": InProcess,
        }
        self._made: dict[str, Side] = {}

    def __getitem__(self, name: str) -> Side:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    async def close(self) -> None:
        """Let the sides that were made clean up, the last one first: a compiled graph sets its actors free."""
        for side in reversed(self._made.values()):
            await side.close()
