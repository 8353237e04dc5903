"""How calls are admitted, cancelled and translated, without Ray: handles are scripted at Serve's public seam."""

import asyncio
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from app.admission import Admission
from app.arena import Arena
from app.config.pipeline import HandoffShape
from app.errors import (
    DeadlineExceeded,
    EmbeddingMismatch,
    InternalError,
    InvalidRequest,
    Overloaded,
    PayloadElsewhere,
    StageUnavailable,
)
from app.handles import (
    INLINE_BYTES,
    LocalCall,
    RemoteCall,
    RemoteRetriever,
    translate,
)
from app.messages import JudgeRequest, RetrievalQuery, Retrieved
from app.metrics import MemoryMetrics
from app.payloads import Payloads


class Echo:
    """A runner that takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.finished = 0

    async def run(self, request, payload=None):
        await asyncio.sleep(self.seconds)
        self.finished += 1
        return request, payload

    def run_now(self, request):
        return None

    async def manage(self, method, *arguments):
        return method, arguments


class Response:
    """Stands for Serve's DeploymentResponse."""

    def __init__(self, result, seconds=0.0):
        self.result = result
        self.seconds = seconds
        self.cancelled = False

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self):
        await asyncio.sleep(self.seconds)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def cancel(self):
        self.cancelled = True
        if isinstance(self.result, Exception):
            raise self.result  # as Serve does for a refused request


class Handle:
    """Stands for Serve's DeploymentHandle; remembers each call and the options it was made with."""

    def __init__(self, results, calls=None, options=None, keywords=None):
        self.results = results
        self.calls = [] if calls is None else calls
        self.keywords = [] if keywords is None else keywords
        self.given = options or {}

    def options(self, **options):
        return Handle(self.results, self.calls, self.given | options, self.keywords)

    def remote(self, *arguments, **keywords):
        self.calls.append((self.given, arguments))
        self.keywords.append(keywords)
        return self.results.pop(0)


def soon(seconds=5.0):
    return time.monotonic() + seconds


def local(runner, max_ongoing=4, max_queued=4, metrics=None):
    return LocalCall("guardrail", runner, Admission("guardrail", max_ongoing, max_queued, metrics or MemoryMetrics()))


async def test_a_local_call_resolves_the_payload_of_an_earlier_one():
    first = local(Echo()).submit("question")
    second = local(Echo()).submit("prompt", first)
    assert await second.result(soon()) == ("prompt", ("question", None))


async def test_a_full_queue_refuses_at_once_and_counts_it():
    metrics = MemoryMetrics()
    call = local(Echo(0.2), max_ongoing=1, max_queued=1, metrics=metrics)
    pending = [call.submit(number) for number in range(4)]
    results = await asyncio.gather(*(one.result(soon()) for one in pending), return_exceptions=True)
    shed = [result for result in results if isinstance(result, Overloaded)]
    assert len(shed) == 2
    assert all(error.status == 503 and error.headers() == {"Retry-After": "1"} for error in shed)
    assert metrics.total("baton_sheds_total", stage="guardrail") == 2
    assert (await call.submit("after").result(soon()))[0] == "after"


async def test_an_unbounded_queue_sheds_nothing():
    call = local(Echo(0.001), max_ongoing=1, max_queued=-1)
    results = await asyncio.gather(*(call.submit(number).result(soon()) for number in range(50)))
    assert [result[0] for result in results] == list(range(50))


async def test_a_deadline_ends_the_wait_and_the_work():
    runner = Echo(30)
    pending = local(runner).submit("slow")
    with pytest.raises(DeadlineExceeded) as caught:
        await pending.result(soon(0.02))
    assert caught.value.stage == "guardrail"
    assert "raise timeout_seconds" in caught.value.message
    await asyncio.sleep(0)
    assert pending.cancel() is False
    assert runner.finished == 0


async def test_small_messages_go_by_value_and_large_ones_by_reference():
    handle = Handle([Response("verdict"), Response("big")])
    call = RemoteCall("guardrail", handle, MemoryMetrics())
    await call.submit(JudgeRequest("input", ("hi",))).result(soon())
    await call.submit(JudgeRequest("input", ("x" * INLINE_BYTES,))).result(soon())
    assert [options["_by_reference"] for options, _ in handle.calls] == [False, True]


QUERY = RetrievalQuery("hi", ("docs",), 4, 64)
TABLE = pa.table({"text": ["passage"] * 100, "score": np.zeros(100, np.float32)})


@pytest.fixture
def payloads(tmp_path, monkeypatch):
    monkeypatch.setattr("app.payloads.Arena", partial(Arena, folder=tmp_path))
    return Payloads(HandoffShape(slots=1, slot_bytes=1 << 20))


async def test_without_an_arena_a_payload_goes_by_reference_and_is_never_awaited_on_its_way():
    handle = Handle([Response("table", seconds=0.01), Response("report")])
    metrics = MemoryMetrics()
    retrieved = RemoteRetriever("retriever", handle, metrics).submit(QUERY)
    report = RemoteCall("postprocessor", handle, metrics).submit("request", retrieved)
    assert await report.result(soon()) == "report"
    assert [options["_by_reference"] for options, _ in handle.calls] == [True, True]
    # The payload was passed on as Serve's response object: its bytes never came through this process.
    assert handle.calls[1][1][:2] == ("request", retrieved.response)


async def test_a_payload_in_the_arena_is_mapped_and_its_place_goes_on_by_value(payloads):
    placed = await payloads.place(Retrieved(TABLE, 4))
    handle = Handle([Response(placed), Response("report")])
    pending = RemoteRetriever("retriever", handle, MemoryMetrics(), payloads).submit(QUERY)
    retrieved = await pending.result(soon())
    assert retrieved.passages.equals(TABLE)
    assert not retrieved.passages.column("score").chunk(0).buffers()[1].is_mutable
    report = RemoteCall("postprocessor", handle, MemoryMetrics(), payloads).submit("request", pending)
    assert await report.result(soon()) == "report"
    ways = [(options["method_name"], options["_by_reference"]) for options, _ in handle.calls]
    assert ways == [("place", False), ("run", False)]
    assert handle.calls[1][1][:2] == ("request", placed)
    assert await payloads.place(Retrieved(TABLE, 4)) is None
    pending.release(lingering=False)
    await asyncio.sleep(0.01)
    assert await payloads.place(Retrieved(TABLE, 4)) is not None


async def test_memory_that_somebody_may_still_read_is_given_back_later(payloads, monkeypatch):
    monkeypatch.setattr("app.handles._LINGERING_SECONDS", 0.1)
    handle = Handle([Response(await payloads.place(Retrieved(TABLE, 4)))])
    pending = RemoteRetriever("retriever", handle, MemoryMetrics(), payloads).submit(QUERY)
    await pending.result(soon())
    pending.release(lingering=True)
    await asyncio.sleep(0.02)
    assert await payloads.place(Retrieved(TABLE, 4)) is None
    await asyncio.sleep(0.12)
    assert await payloads.place(Retrieved(TABLE, 4)) is not None


async def test_a_full_arena_or_another_node_falls_back_to_the_object_store(payloads):
    placed = await payloads.place(Retrieved(TABLE, 4))
    far = replace(placed, placed=replace(placed.placed, file=placed.placed.file + "0"))
    handle = Handle([Response(None), Response("table"), Response(far), Response("table"), Response("table")])
    retriever = RemoteRetriever("retriever", handle, MemoryMetrics(), payloads)
    for _ in range(3):
        pending = retriever.submit(QUERY)
        assert await pending.result(soon()) == "table"
        assert pending.reference is not None
    methods = [options["method_name"] for options, _ in handle.calls]
    assert methods == ["place", "run", "place", "run", "run"]  # another node is remembered for a minute


async def test_a_consumer_on_another_node_gets_the_payload_as_an_argument(payloads):
    made_here = local(Echo()).submit("table")
    made_here.hold(await payloads.place(Retrieved(TABLE, 4)), payloads)
    handle = Handle([Response(RayTaskError(PayloadElsewhere("other node", "retriever"))), Response("report")])
    report = RemoteCall("postprocessor", handle, MemoryMetrics(), payloads).submit("request", made_here)
    assert await report.result(soon()) == "report"
    assert [options["_by_reference"] for options, _ in handle.calls] == [False, True]
    assert handle.calls[1][1][:2] == ("request", ("table", None))


class Finder(Echo):
    async def run(self, request, payload=None):
        return Retrieved(TABLE, 4)


async def test_a_payload_made_in_this_process_is_placed_for_its_consumers(payloads):
    made_here = local(Finder()).submit("question")
    handle = Handle([Response("report")])
    report = RemoteCall("postprocessor", handle, MemoryMetrics(), payloads).submit("request", made_here)
    assert await report.result(soon()) == "report"
    options, (_, placed, _) = handle.calls[0]
    assert options["_by_reference"] is False
    assert payloads.open(placed).passages.equals(TABLE)


async def test_without_an_arena_a_payload_made_in_this_process_is_sent_as_an_argument():
    handle = Handle([Response("report")])
    made_here = local(Echo()).submit("table")
    report = await RemoteCall("postprocessor", handle, MemoryMetrics()).submit("request", made_here).result(soon())
    assert report == "report"
    assert handle.calls[0][0]["_by_reference"] is True
    assert handle.calls[0][1][:2] == ("request", ("table", None))


async def test_cancelling_reaches_the_replica():
    handle = Handle([response := Response("late", seconds=30)])
    pending = RemoteCall("retriever", handle, MemoryMetrics()).submit("question")
    await asyncio.sleep(0)
    assert pending.cancel() is True
    assert response.cancelled


class BackPressureError(Exception):
    """Serve's error by name: app code must not import Ray."""


class ActorDiedError(Exception):
    """Ray's error by name."""


class RayTaskError(Exception):
    """Ray wraps what a replica raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (BackPressureError(), Overloaded),
        (RayTaskError(BackPressureError()), Overloaded),
        (ActorDiedError(), StageUnavailable),
        (RayTaskError(EmbeddingMismatch("other size", "retriever")), EmbeddingMismatch),
        (RuntimeError("boom"), InternalError),
        (TimeoutError(), DeadlineExceeded),
    ],
)
async def test_whatever_a_replica_raises_becomes_one_of_our_errors(raised, expected):
    metrics = MemoryMetrics()
    call = RemoteCall("retriever", Handle([Response(raised)] * 3), metrics)
    with pytest.raises(expected) as caught:
        await call.submit("question").result(soon())
    assert caught.value.stage == "retriever"
    assert metrics.total("baton_sheds_total", stage="retriever") == (expected is Overloaded)
    assert "boom" not in str(caught.value)


async def test_an_admitted_caller_waits_for_a_full_queue_and_is_not_shed():
    metrics = MemoryMetrics()
    handle = Handle([Response(BackPressureError()), Response(BackPressureError()), Response("verdict")])
    call = RemoteCall("guardrail", handle, metrics)
    assert await call.call(JudgeRequest("output", ("hi",)), soon()) == "verdict"
    assert metrics.total("baton_sheds_total") == 0
    assert metrics.total("baton_retries_total", stage="guardrail") == 2
    with pytest.raises(Overloaded):
        await RemoteCall("guardrail", Handle([Response(BackPressureError())]), metrics).call("late", soon(0.001))
    with pytest.raises(DeadlineExceeded):
        await RemoteCall("guardrail", Handle([Response("slow", seconds=5)]), metrics).call("late", soon(0.02))


def test_translate_finds_our_error_behind_a_chain():
    error = RuntimeError("wrapper")
    error.__cause__ = InvalidRequest("name it", "retriever", "rag.collection")
    assert translate(error, "gateway").param == "rag.collection"


class EngineDeadError(Exception):
    """Named as vLLM names it."""


def test_an_engine_that_died_is_told_as_such():
    error = translate(EngineDeadError("EngineCore encountered an issue. See stack trace (above)."), "generator")
    assert (error.status, error.retry_after_seconds) == (503, 30)
    assert "is being started again" in error.message
    assert "stack trace" not in error.message


class Ready(Echo):
    """A runner that answers some requests on the spot."""

    def run_now(self, request):
        if request == "bad":
            raise InvalidRequest("no", "guardrail")
        if request == "worse":
            raise RuntimeError("boom")
        return "now" if request == "short" else None


async def test_a_call_that_needs_no_wait_takes_none():
    runner = Ready()
    call = local(runner)
    assert await call.call("short", soon()) == "now"
    assert runner.finished == 0
    assert await call.call("long", soon()) == ("long", None)
    for request, kind in (("bad", InvalidRequest), ("worse", InternalError)):
        with pytest.raises(kind):
            await call.call(request, soon())
