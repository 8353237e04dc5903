"""A call to a stage whose deployment was removed ends soon, with 503; a call that somebody takes is left alone."""

import asyncio
import concurrent.futures
import time

import pytest

from app import absence
from app.errors import StageUnavailable
from app.handles import RemoteCall, RemoteRetriever
from app.messages import JudgeRequest, RetrievalQuery
from app.metrics import MemoryMetrics
from tests.unit.test_handles import Handle, Response

JUDGE = JudgeRequest("input", ("text",), "default")
QUERY = RetrievalQuery(text="question", collections=("docs",), top_k=1, candidates=1)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(absence, "_PATIENCE_SECONDS", 0.02)


def waiting(taken=False, seconds=30.0):
    """Return a response that comes late, from a replica or for want of one."""
    response = Response("late", seconds)
    response._replica_result_future = concurrent.futures.Future()
    if taken:
        response._replica_result_future.set_result(None)
    return response


async def gone():
    return True


async def send(way, response, gone):
    kind = RemoteRetriever if way == "retriever" else RemoteCall
    call = kind(way, Handle([response]), MemoryMetrics(), gone=gone)
    if way == "per token":
        return await call.call(JUDGE, time.monotonic() + 60)
    if way == "manage":
        return await call.manage("list_collections")
    return await call.submit(QUERY if way == "retriever" else JUDGE).result(time.monotonic() + 60)


WAYS = ["guardrail", "retriever", "per token", "manage"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_nobody_will_take_ends_soon(way):
    response = waiting()
    began = time.monotonic()
    with pytest.raises(StageUnavailable) as caught:
        await send(way, response, gone)
    assert time.monotonic() - began < 5
    assert caught.value.stage == way
    assert caught.value.headers() == {"Retry-After": "5"}
    assert response.cancelled


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_was_taken_is_answered(way):
    assert await send(way, waiting(taken=True, seconds=0.1), gone) == "late"


@pytest.mark.parametrize("way", WAYS)
async def test_a_stage_that_is_only_late_is_waited_for(way):
    asked = []

    async def there():
        asked.append(way)
        return False

    assert await send(way, waiting(seconds=0.1), there) == "late"
    assert asked


async def test_a_call_that_is_answered_in_time_asks_nobody():
    async def never_asked():
        raise AssertionError("asked")

    assert await send("guardrail", Response("soon"), never_asked) == "soon"
    await asyncio.sleep(0.05)
