"""One timer over many waits behaves like ``asyncio.timeout`` around each."""

import asyncio
import time
from contextlib import closing

import pytest

from app.deadline import Deadline
from app.errors import DeadlineExceeded


async def slow(seconds, closed):
    try:
        for number, pause in enumerate(seconds):
            await asyncio.sleep(pause)
            yield number
    finally:
        closed.append(True)


async def read(items, deadline):
    found = []
    with closing(deadline):
        while (item := await deadline.next_of(items)) is not None:
            found.append(item)
    return found


def within(seconds):
    return Deadline(time.monotonic() + seconds, "generator")


def test_items_come_through_until_the_end():
    async def run():
        return await read(slow([0, 0.01, 0], []), within(5))

    assert asyncio.run(run()) == [0, 1, 2]


def test_a_wait_ends_at_the_deadline_and_what_was_waited_for_is_cancelled():
    closed = []

    async def run():
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded) as refused:
            await read(slow([0, 30], closed), within(0.05))
        assert time.monotonic() - start < 5
        assert refused.value.stage == "generator"
        assert "raise timeout_seconds" in refused.value.message
        await asyncio.sleep(0)
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(run())
    assert closed == [True]


def test_a_deadline_that_passed_between_two_waits_refuses_the_next():
    async def run():
        deadline = within(0.01)
        items = slow([0, 0, 0], [])
        assert await deadline.next_of(items) == 0
        await asyncio.sleep(0.05)
        with pytest.raises(DeadlineExceeded):
            await deadline.next_of(items)

    asyncio.run(run())


def test_a_cancellation_from_outside_stays_one():
    async def run():
        task = asyncio.create_task(read(slow([30], []), within(5)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_closed_deadline_never_strikes():
    async def run():
        deadline = within(0.01)
        deadline.close()
        await asyncio.sleep(0.05)
        return await deadline.next_of(slow([0], []))

    assert asyncio.run(run()) == 0


def test_one_result_is_waited_for_like_an_item():
    ended = []

    async def work(seconds):
        try:
            await asyncio.sleep(seconds)
            return "done"
        finally:
            ended.append(seconds)

    async def run():
        deadline = within(0.05)
        assert await deadline.result_of(work(0)) == "done"
        with pytest.raises(DeadlineExceeded):
            await deadline.result_of(work(30))
        with pytest.raises(DeadlineExceeded):
            await deadline.result_of(work(31))  # not begun, and no warning that it was never awaited

    asyncio.run(run())
    assert ended == [0, 30]
