"""A stream from a model's engine: cancelled however its reader leaves, and refused before its first item."""

import asyncio

import pytest

from app.errors import Overloaded
from app.metrics import MemoryMetrics
from app.remote_engine import RemoteEngine
from tests.unit.test_handles import BackPressureError, Handle


class Stream:
    """Stands for Serve's DeploymentResponseGenerator."""

    def __init__(self, items):
        self.items = list(items)
        self.refusals = [item for item in self.items if isinstance(item, Exception)]
        self.cancels = 0

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if not self.items:
            raise StopAsyncIteration
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self):
        self.cancels += 1
        for item in self.refusals:
            raise item  # as Serve does for a refused request


async def test_a_stream_is_cancelled_however_its_reader_leaves():
    streams = [Stream([1, 2, 3]) for _ in range(3)]
    handle = Handle(list(streams))
    metrics = MemoryMetrics()
    engine = RemoteEngine("generator", lambda: handle, metrics)

    assert [item async for item in engine.generate("chat", {})] == [1, 2, 3]

    closed_early = engine.generate("chat", {})
    await anext(closed_early)
    await closed_early.aclose()

    async def read_and_fail():
        async for _ in engine.generate("chat", {}):
            raise RuntimeError("reader failed")

    with pytest.raises(RuntimeError, match="reader failed"):
        await read_and_fail()
    await asyncio.sleep(0.01)
    assert [stream.cancels for stream in streams[:2]] == [1, 1]
    assert metrics.total("baton_cancels_total", stage="generator") >= 1
    plain = {"method_name": "generate", "stream": True, "response_serialization": "pickle", "_by_reference": False}
    assert handle.calls[0][0] == plain


async def test_an_adapter_goes_to_a_replica_that_has_it():
    handle = Handle([Stream([1]), Stream([2])])
    engine = RemoteEngine("generator", lambda: handle, MemoryMetrics())
    for model in ("llama", "llama:sql"):
        assert [item async for item in engine.generate("chat", {"model": model})]
    assert [options.get("multiplexed_model_id") for options, *_ in handle.calls] == [None, "llama:sql"]


async def test_a_full_engine_queue_is_an_overload_before_the_first_item():
    metrics = MemoryMetrics()
    engine = RemoteEngine("generator", lambda: Handle([Stream([BackPressureError()])]), metrics)
    with pytest.raises(Overloaded):
        await anext(engine.generate("chat", {}))
    assert metrics.total("baton_sheds_total", stage="generator") == 1
