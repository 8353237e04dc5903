"""Calls whose replica died: which are sent again, how often, and what with."""

import asyncio
import time

import pytest

from app.errors import DeadlineExceeded, InternalError, Overloaded, ReplicaLost, StageUnavailable
from app.failures import translate
from app.handles import RemoteCall, RemoteRetriever
from app.messages import JudgeRequest, RetrievalQuery
from app.metrics import MemoryMetrics
from app.remote_engine import RemoteEngine
from app.retries import ATTEMPTS, Retries
from tests.unit.test_handles import ActorDiedError, BackPressureError, Handle, Response, soon
from tests.unit.test_remote_engine import Stream

QUERY = RetrievalQuery("hi", ("docs",), 4, 64)


class AioRpcError(Exception):
    """gRPC's error by name, with the name of its code."""

    def __init__(self, name):
        super().__init__(name)
        self._name = name

    def code(self):
        return type("Code", (), {"name": self._name})


@pytest.fixture
def metrics():
    return MemoryMetrics()


def died():
    return Response(ActorDiedError())


@pytest.mark.parametrize("stage", ["guardrail", "assembler", "postprocessor", "retriever"])
async def test_a_safe_call_goes_to_another_replica(metrics, stage):
    call = (RemoteRetriever if stage == "retriever" else RemoteCall)(stage, Handle([died(), Response("fine")]), metrics)
    assert await call.submit("question").result(soon()) == "fine"
    assert metrics.total("baton_retries_total", stage=stage) == 1


async def test_a_call_that_kills_every_replica_ends(metrics):
    handle = Handle([died() for _ in range(9)])
    with pytest.raises(StageUnavailable) as caught:
        await RemoteCall("guardrail", handle, metrics).submit("poison").result(soon())
    assert caught.value.retry_after_seconds == 5
    assert len(handle.calls) == ATTEMPTS


@pytest.mark.parametrize(("fault", "expected"), [(BackPressureError(), Overloaded), (ValueError("x"), InternalError)])
async def test_what_another_replica_would_refuse_as_well_is_not_repeated(metrics, fault, expected):
    handle = Handle([Response(fault), Response("fine")])
    with pytest.raises(expected):
        await RemoteCall("guardrail", handle, metrics).submit("question").result(soon())
    assert len(handle.calls) == 1


async def test_a_repeat_ends_at_the_deadline(metrics):
    call = RemoteCall("guardrail", Handle([died(), Response("late", seconds=30)]), metrics)
    with pytest.raises(DeadlineExceeded):
        await call.submit("question").result(soon(0.05))


async def test_a_call_per_piece_is_repeated_too(metrics):
    call = RemoteCall("guardrail", Handle([died(), Response(BackPressureError()), Response("verdict")]), metrics)
    assert await call.call(JudgeRequest("output", ("hi",)), soon()) == "verdict"
    assert metrics.total("baton_retries_total", stage="guardrail") == 2
    with pytest.raises(ReplicaLost):
        await RemoteCall("guardrail", Handle([died() for _ in range(3)]), metrics).call("poison", soon())


async def test_only_methods_that_change_nothing_are_called_again(metrics):
    call = RemoteCall("retriever", Handle([died(), Response(["docs"])]), metrics)
    assert await call.manage("list_collections") == ["docs"]
    handle = Handle([died(), Response("stored")])
    with pytest.raises(ReplicaLost):
        await RemoteCall("retriever", handle, metrics).manage("upsert_documents", "docs", [])
    assert len(handle.calls) == 1


async def test_a_payload_that_died_with_its_owner_is_retrieved_again_and_its_consumer_gets_the_new_one(metrics):
    retriever = Handle([died(), Response("table")])
    retrieved = RemoteRetriever("retriever", retriever, metrics).submit(QUERY)
    lost = retrieved.reference
    consumer = Handle([died(), Response("report")])
    report = RemoteCall("postprocessor", consumer, metrics).submit("request", retrieved)
    assert await report.result(soon()) == "report"
    sent = [arguments[1] for _, arguments in consumer.calls]
    assert sent == [lost, "table"]
    assert retrieved.reference is not lost


async def test_a_request_goes_to_another_engine_before_its_first_item_and_never_after(metrics):
    handle = Handle([Stream([ActorDiedError()]), Stream([1, 2]), Stream([1, ActorDiedError()])])
    engine = RemoteEngine("generator", lambda: handle, metrics)
    assert [item async for item in engine.generate("chat", {})] == [1, 2]
    items = engine.generate("chat", {})
    assert await anext(items) == 1
    with pytest.raises(ReplicaLost):
        await anext(items)
    assert metrics.total("baton_retries_total", stage="generator") == 1


async def test_an_engine_that_died_before_its_replica_is_left_for_another(metrics):
    error = {"message": "EngineCore encountered an issue.", "code": 500}
    handle = Handle(
        [Stream([[{"error": error}]]), Stream([["data: fine"]]), Stream([["data: fine"], {"error": error}])]
    )
    engine = RemoteEngine("generator", lambda: handle, metrics)
    assert [item async for item in engine.generate("chat", {})] == [["data: fine"]]
    items = engine.generate("chat", {})
    await anext(items)
    with pytest.raises(StageUnavailable) as caught:
        await anext(items)
    assert caught.value.retry_after_seconds == 30


async def test_repeats_stay_under_a_tenth_of_the_calls(metrics):
    retries = Retries("guardrail", metrics)
    while await retries.another(1):
        pass
    burst = metrics.total("baton_retries_total")
    assert burst >= 64  # what one replica may have had in hand
    for _ in range(1000):
        retries.answered()
        await retries.another(1)
    assert metrics.total("baton_retries_total") - burst <= 100


@pytest.mark.parametrize(
    "fault",
    [
        ActorDiedError(),
        AioRpcError("UNAVAILABLE"),
        AioRpcError("CANCELLED"),
        RuntimeError("Unexpected error (StatusCode.UNAVAILABLE): Socket closed."),
    ],
)
def test_a_replica_that_is_gone_is_told_from_one_that_fails(fault):
    assert isinstance(translate(fault, "retriever"), ReplicaLost)


@pytest.mark.parametrize("fault", [AioRpcError("RESOURCE_EXHAUSTED"), RuntimeError("Unexpected"), MemoryError()])
def test_a_replica_that_fails_is_not_lost(fault):
    assert not isinstance(translate(fault, "retriever"), StageUnavailable)


class Replica:
    """Stands for a replica as Serve's router knows it."""

    max_ongoing_requests = 32


async def test_an_engine_tells_how_many_requests_its_replicas_take(metrics):
    handle = Handle([])
    engine = RemoteEngine("generator", lambda: handle, metrics)
    assert engine.slots() is None
    router = type("Router", (), {"curr_replicas": {"a": Replica(), "b": Replica()}})
    engine._handle._router = type("Way", (), {"_asyncio_router": type("Inner", (), {"_request_router": router})})
    assert engine.slots() == 64
    router.curr_replicas = {}
    assert engine.slots() == 64


async def test_a_second_repeat_waits_a_little(metrics):
    began = time.monotonic()
    retries = Retries("guardrail", metrics)
    assert await retries.another(2)
    assert time.monotonic() - began < 1
    assert await asyncio.wait_for(retries.another(1), 0.05)
