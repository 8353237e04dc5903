"""The three patterns: what they return, what they call, and how they end."""

import asyncio
import time

import pytest

from app.apps.composition import broadcast, conditional, pipeline, unchanged
from app.errors import DeadlineExceeded, StageUnavailable


def soon(seconds=5.0):
    return time.monotonic() + seconds


def adds(number):
    async def step(value, deadline):
        return value + number

    return step


class Sleeper:
    """A step that never ends by itself, and tells that it was cancelled."""

    def __init__(self, stage="sleeper"):
        self.stage = stage
        self.began = asyncio.Event()
        self.cancelled = False

    async def __call__(self, value, deadline):
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def fails(value, deadline):
    raise StageUnavailable("No replica.", "summary")


async def test_a_pipeline_hands_each_result_on():
    assert await pipeline(adds(1), adds(10), adds(100), adds(1000))(0, soon()) == 1111


async def test_branches_get_one_value_and_run_side_by_side():
    gate = asyncio.Barrier(2)
    seen = []

    async def meets(value, deadline):
        seen.append(value)
        await gate.wait()  # nobody gets past it alone
        return len(seen)

    handed = object()
    kept, first, second = await broadcast(unchanged, meets, meets)(handed, soon())
    assert kept is handed
    assert seen == [handed, handed]
    assert (first, second) == (2, 2)


async def test_a_failing_branch_cancels_the_others_and_its_error_comes_out():
    sleeper = Sleeper()

    async def fails_later(value, deadline):
        await sleeper.began.wait()
        await fails(value, deadline)

    with pytest.raises(StageUnavailable, match="No replica"):
        await pipeline(adds(1), broadcast(sleeper, fails_later))(1, soon())
    assert sleeper.cancelled


async def test_the_deadline_stops_every_branch_and_names_the_stage():
    branches = [Sleeper("sentiment"), Sleeper("summary")]
    with pytest.raises(DeadlineExceeded) as raised:
        await broadcast(*branches)(1, soon(0.05))
    assert raised.value.stage in {"sentiment", "summary"}
    assert all(branch.cancelled for branch in branches)


async def test_nothing_begins_after_the_deadline():
    called = []

    async def late(value, deadline):
        called.append(value)

    async def slow(value, deadline):
        time.sleep(0.03)  # noqa: ASYNC251 - a step that keeps the loop busy past the deadline
        return value

    with pytest.raises(DeadlineExceeded):
        await pipeline(slow, late)(1, soon(0.02))
    assert called == []


async def test_cancelling_a_composition_cancels_what_is_under_way():
    sleeper = Sleeper()
    task = asyncio.create_task(pipeline(adds(1), broadcast(unchanged, sleeper))(1, soon()))
    await sleeper.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleeper.cancelled


@pytest.mark.parametrize(("value", "result", "called"), [(4, 5, [4]), (3, "3 is odd", [])])
async def test_a_condition_decides_what_is_called(value, result, called):
    calls = []

    async def then(value, deadline):
        calls.append(value)
        return value + 1

    flow = conditional(unchanged, lambda verdict: verdict % 2 == 0, then, lambda verdict: f"{verdict} is odd")
    assert await flow(value, soon()) == result
    assert calls == called


async def test_a_timeout_of_a_step_s_own_is_no_deadline():
    async def own(value, deadline):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await pipeline(own, adds(1))(1, soon())
