"""The rival's services: ``python -m tests.bench.microservices_service <plan.json> <kind> …``, one process each.

Kinds: the five stages, each a plain ASGI application around Baton's own stage class; ``gateway`` and ``whole``, Baton's
own API and course of a request with HTTP between the stages; ``one``, the same with all stages in its own process.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvicorn

from app.admission import Admission
from app.answering import Stages
from app.api.application import build_api
from app.config.pipeline import PipelineSettings, PipelineShape
from app.config.serve import STAGES
from app.deployments.runner import StageRunner
from app.deployments.stages import build_runner
from app.entrance import Entrance, Room
from app.handles import LocalCall
from app.metrics import MemoryMetrics
from app.pipeline import Pipeline
from app.stages.generator import Generator
from app.testing.engine import FakeEngine
from tests.bench.microservices_store import install
from tests.bench.microservices_wire import (
    TAKES,
    HttpCall,
    HttpEngine,
    answer_parts,
    merged,
    read_payload,
    split,
)

_CHUNK = 4 * 1024 * 1024
_IDLE_SECONDS = 3600
_MANY = 10_000
Handler = Callable[[memoryview], Awaitable[list[Any]]]


class Plan:
    """What every service is started with."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.ports: dict[str, int] = raw["ports"]
        self.shape = PipelineShape.parse(raw["shape"], "shape")
        self.settings = PipelineSettings.parse(raw["settings"], "settings")
        self.rates: dict[str, float] = raw["rates"]

    def url(self, kind: str) -> str:
        return f"http://127.0.0.1:{self.ports[kind]}/"

    def engines(self) -> dict[str, FakeEngine]:
        return {model: FakeEngine(seconds_per_token=rate) for model, rate in self.rates.items()}

    async def runner(self, name: str) -> StageRunner:
        """Return a started stage with the threads that Baton gives it."""
        built = build_runner(name, self.shape, MemoryMetrics())
        # Serve's batching of questions needs Serve.
        runner = StageRunner(built.stage, self.shape.stages.retriever.threads) if name == "retriever" else built
        await runner.start()
        await runner.configure(getattr(self.settings, name))
        return runner


class Service:
    """A plain ASGI application: one POST in, one body out. ``start`` makes the handler, on the server's own loop."""

    def __init__(self, start: Callable[[], Awaitable[Handler]]) -> None:
        self._start = start
        self._handle: Handler | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["method"] == "GET":
            await _reply(send, [b"ready"])
            return
        await _reply(send, await self._handle(await _body(scope, receive)))

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self._handle = await self._start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _body(scope: Any, receive: Any) -> memoryview:
    length = next(int(value) for name, value in scope["headers"] if name == b"content-length")
    body, start, more = bytearray(length), 0, True
    while more:
        event = await receive()
        chunk = event["body"]
        body[start : start + len(chunk)] = chunk
        start += len(chunk)
        more = event.get("more_body", False)
    return memoryview(body)


async def _reply(send: Any, parts: list[Any]) -> None:
    length = str(sum(len(part) for part in parts)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    for place, part in enumerate(parts, 1):
        await send({"type": "http.response.body", "body": part, "more_body": place < len(parts)})


def stage_service(plan: Plan, name: str) -> Service:
    """Return a stage as a service."""

    async def start() -> Handler:
        runner = await plan.runner(name)

        async def handle(body: memoryview) -> list[Any]:
            message, raw = split(body)
            if not len(raw):
                return answer_parts(await runner.run(TAKES[name].validate_json(bytes(message))))
            both = orjson.loads(message)
            request = TAKES[name].validate_json(orjson.dumps(both["request"]))
            return answer_parts(await runner.run(request, read_payload(both["payload"], raw)))

        return handle

    return Service(start)


def generator_service(plan: Plan) -> Service:
    """Return the engines as a service."""

    async def start() -> Handler:
        engines = plan.engines()

        async def handle(body: memoryview) -> list[Any]:
            asked = orjson.loads(body)
            engine = engines[asked["body"]["model"]]
            return [orjson.dumps(merged([item async for item in engine.generate(asked["kind"], asked["body"])]))]

        return handle

    return Service(start)


class Uncounted:
    """Stands for Baton's proof of how a payload arrived, which looks for Ray's memory."""

    def record(self, hop: str, retrieved: Any, sent: float) -> None:
        """Count nothing."""


def gateway_service(plan: Plan, kind: str) -> Any:
    """Return Baton's API over stages that are services, or over stages of this process."""
    found: list[Pipeline] = []
    settings = plan.settings.gateway(plan.shape)
    api = build_api(lambda: found[0], lambda: settings)

    async def start() -> Handler:
        metrics = MemoryMetrics()
        calls, engines = await (_own(plan, metrics) if kind == "one" else _remote(plan, kind == "whole"))
        stages = Stages(**calls, generator=Generator(engines), metrics=metrics, meter=Uncounted())
        shape = plan.shape.stages.gateway
        room = Room(shape.max_ongoing_requests, shape.max_queued_requests, lambda model: None, lambda model: None)
        entrance = Entrance(metrics, lambda: settings.priorities, room)
        found.append(Pipeline(stages, entrance, _ready, _runs))
        return _nothing

    service = Service(start)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (service if scope["type"] == "lifespan" else api)(scope, receive, send)

    return app


async def _ready() -> dict[str, str]:
    return {"gateway": "ready"}


async def _runs(model: str) -> bool:
    return True


async def _nothing(body: memoryview) -> list[Any]:
    return []


async def _own(plan: Plan, metrics: MemoryMetrics) -> tuple[dict[str, Any], dict[str, Any]]:
    admission = {name: Admission(name, _MANY, _MANY, metrics) for name in STAGES}
    calls = {name: LocalCall(name, await plan.runner(name), admission[name]) for name in STAGES}
    return calls, plan.engines()


async def _remote(plan: Plan, whole: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)
    session = aiohttp.ClientSession(connector=connector, read_bufsize=_CHUNK, auto_decompress=False)
    calls = {name: HttpCall(name, plan.url(name), session, whole=whole) for name in STAGES}
    return calls, dict.fromkeys(plan.rates, HttpEngine(plan.url("generator"), session))


def build(kind: str, plan: Plan) -> Any:
    """Return the application of one kind."""
    if kind == "generator":
        return generator_service(plan)
    return stage_service(plan, kind) if kind in STAGES else gateway_service(plan, kind)


def serve(kind: str, plan: Plan) -> None:
    """Serve one kind under uvicorn."""
    warnings.simplefilter("ignore", ResourceWarning)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    uvicorn.run(
        build(kind, plan),
        host="127.0.0.1",
        port=plan.ports[kind],
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_IDLE_SECONDS,
    )


def main() -> None:
    """Fork a process per kind off this one, so that imports happen once; say which, and end with them."""
    install()
    plan = Plan(orjson.loads(Path(sys.argv[1]).read_bytes()))
    context = multiprocessing.get_context("fork")
    processes = {kind: context.Process(target=serve, args=(kind, plan), daemon=True) for kind in sys.argv[2:]}
    for process in processes.values():
        process.start()
    print(orjson.dumps({kind: process.pid for kind, process in processes.items()}).decode(), flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    multiprocessing.connection.wait([process.sentinel for process in processes.values()])


if __name__ == "__main__":
    main()
