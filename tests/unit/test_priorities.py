"""Jobs of several priority classes before one engine, through the whole pipeline."""

import asyncio
import collections
import time

import pytest

from app.config.priorities import PriorityConfig
from app.errors import DeadlineExceeded, Overloaded, StageUnavailable
from app.jobs import Finished, Started
from app.testing.engine import FakeEngine
from tests.unit.site import Site, job


def batch(**given):
    return job(priority="batch", engine_priority=10, **given)


@pytest.fixture
def narrow(tmp_path):
    """A pipeline whose engine works on two jobs at once."""
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.01), max_ongoing=64, max_queued=64)
    site.slots = 2
    return site


async def test_the_engine_is_told_the_rank_of_the_class(narrow):
    await narrow.ask(job())
    await narrow.ask(batch())
    assert [body["priority"] for body in narrow.engine.bodies] == [0, 10]


async def test_the_engine_never_has_more_than_its_places_and_higher_jobs_come_first(narrow):
    seen, most = [], 0

    async def ask(asked):
        nonlocal most
        async for event in narrow.pipeline.chat(asked):
            if isinstance(event, Started):
                most = max(most, narrow.engine.running)
                seen.append(asked.priority)
            assert isinstance(event, Finished) or narrow.engine.running <= 2

    tasks = [asyncio.create_task(ask(batch())) for _ in range(4)]
    await asyncio.sleep(0.005)
    tasks += [asyncio.create_task(ask(job())) for _ in range(4)]
    await asyncio.gather(*tasks)
    assert most == 2
    assert seen[:3].count("interactive") >= 1
    assert seen[-2:] == ["batch", "batch"]


async def test_under_a_flood_the_lower_class_gets_its_share(narrow):
    narrow.slots, done = 8, collections.Counter()

    async def ask(asked):
        while done.total() < 200:
            await narrow.ask(asked)
            done[asked.priority] += done.total() < 200

    narrow.engine._seconds = 0.002
    await asyncio.gather(*(ask(asked(deadline=time.monotonic() + 60)) for asked in (job, batch) for _ in range(24)))
    assert done["batch"] / done.total() == pytest.approx(0.2, rel=0.15), done


async def test_a_batch_flood_leaves_a_place_to_whoever_waits_for_an_answer(narrow):
    narrow.slots = 4
    first = await narrow.ask(job())
    assert isinstance(first[0], Started)
    flood = [asyncio.create_task(narrow.ask(batch(max_tokens=10))) for _ in range(12)]
    await asyncio.sleep(0.02)
    assert narrow.metrics.total("baton_ongoing", stage="generator", priority="batch") == 1
    began = time.monotonic()
    await narrow.ask(job(max_tokens=1))
    assert time.monotonic() - began < 0.5
    assert narrow.metrics.total("baton_queued", stage="generator", priority="batch") > 0
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    assert narrow.metrics.total("baton_ongoing") == narrow.metrics.total("baton_queued") == 0


@pytest.mark.parametrize(("running", "error"), [({"tiny"}, DeadlineExceeded), ((), StageUnavailable)])
async def test_a_job_that_waits_too_long_is_late_or_its_model_asleep(narrow, running, error):
    narrow.slots, narrow.running = 1, running
    narrow.engine._seconds = 5
    first = asyncio.create_task(narrow.ask(job()))
    await asyncio.sleep(0.02)
    with pytest.raises(error) as late:
        await narrow.ask(job(deadline=time.monotonic() + 0.05))
    assert type(late.value) is error
    assert len(narrow.engine.bodies) == 1
    assert narrow.metrics.total("baton_timeouts_total", stage="generator") == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_the_wait_is_part_of_the_time_to_the_first_token(narrow):
    narrow.slots = 1
    await asyncio.gather(narrow.ask(job()), narrow.ask(job(max_tokens=1)))
    assert narrow.metrics.total("baton_time_to_first_token_milliseconds", priority="interactive") > 100
    assert narrow.metrics.total("baton_queue_milliseconds", stage="generator", priority="interactive") > 50


async def test_the_time_to_the_first_token_of_a_row_is_known_by_its_class(narrow):
    await narrow.ask(batch())
    assert narrow.metrics.count("baton_time_to_first_token_milliseconds", priority="batch") == 1


async def test_the_lowest_class_is_shed_first(tmp_path):
    site = Site(tmp_path, FakeEngine(seconds_per_token=0.01), max_ongoing=64, max_queued=64, capacity=3)
    site.slots = 1
    tasks = [asyncio.create_task(site.ask(asked)) for asked in (job(), batch(), batch())]
    await asyncio.sleep(0.02)
    assert isinstance((await site.ask(job()))[-1], Finished)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, Overloaded) for result in results] == [False, False, True]
    assert site.metrics.total("baton_sheds_total", stage="generator", priority="batch") == 1
    assert results[2].headers()["Retry-After"]


async def test_an_embedding_asks_no_engine(narrow):
    narrow.slots = 0
    assert (await narrow.pipeline.embed(["zebra"], "default", time.monotonic() + 5)).vectors.shape == (1, 64)


async def test_classes_change_while_jobs_are_served(narrow):
    narrow.slots = 10
    await narrow.ask(job())
    narrow.priorities = {**narrow.priorities, "batch": PriorityConfig(weight=4, engine_priority=10)}
    flood = [asyncio.create_task(narrow.ask(batch())) for _ in range(10)]
    await asyncio.sleep(0.02)
    assert narrow.metrics.total("baton_ongoing", stage="generator", priority="batch") == 6
    await asyncio.gather(*flood)
