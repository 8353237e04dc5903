"""Who goes next, who waits and who is refused, by priority class."""

import asyncio
import collections
import itertools
import random
import time

import pytest

from app.config.priorities import PriorityConfig
from app.errors import DeadlineExceeded, Overloaded
from app.line import Line, Tally
from app.metrics import MemoryMetrics

CLASSES = {
    "interactive": PriorityConfig(weight=4, engine_priority=0),
    "batch": PriorityConfig(weight=1, engine_priority=10),
}


class Site:
    """A line, and jobs that stand in it."""

    def __init__(self, slots=4, limit=None, classes=None, sharers=1, beyond=0):
        self.metrics = MemoryMetrics()
        self.classes = classes or CLASSES
        self.slots = slots
        self.line = Line(
            Tally("generator", self.metrics),
            lambda: self.classes,
            slots=lambda: self.slots,
            limit=lambda: limit,
            sharers=lambda: sharers,
            beyond=beyond,
        )

    async def enter(self, priority="interactive", seconds=5.0):
        return await self.line.enter(priority, time.monotonic() + seconds)

    def ask(self, priority="interactive", seconds=5.0):
        return asyncio.create_task(self.enter(priority, seconds))

    async def fill(self, *priorities):
        """Return places of jobs that are past their first token."""
        places = [await self.enter(priority) for priority in priorities]
        for place in places:
            place.started()
        return places

    def count(self, name, **labels):
        return self.metrics.total(name, stage="generator", **labels)


async def settle():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_jobs_of_one_class_go_in_the_order_of_their_coming():
    site = Site(slots=1)
    (place,) = await site.fill("interactive")
    tasks = [site.ask() for _ in range(3)]
    await settle()
    assert site.count("baton_queued", priority="interactive") == 3
    for task in tasks:
        place.leave()
        await settle()
        assert [other.done() for other in tasks].count(True) == tasks.index(task) + 1
        place = await task
    place.leave()
    assert (site.count("baton_queued"), site.count("baton_ongoing")) == (0, 0)


async def test_without_known_places_everybody_comes_in():
    site = Site(slots=None)
    await asyncio.gather(*(site.enter("batch") for _ in range(100)))
    assert site.count("baton_ongoing", priority="batch") == 100


async def flood(site, seconds_per_job, jobs, *priorities):
    """Keep every class's queue full until ``jobs`` jobs were done; return how many each class had."""
    done, pace = collections.Counter(), random.Random(7)  # jobs of a model take anything but equal times

    async def ask(priority):
        while done.total() < jobs:
            place = await site.enter(priority, 60)
            await asyncio.sleep(seconds_per_job * pace.uniform(0.2, 1.8))
            place.started()
            place.leave()
            done[priority] += done.total() < jobs

    await asyncio.gather(*(ask(priority) for priority in priorities for _ in range(3 * site.slots)))
    return done


@pytest.mark.parametrize("slots", [1, 4, 8, 10, 32])
@pytest.mark.parametrize("weights", [{"a": 4, "b": 1}, {"a": 8, "b": 3, "c": 1}, {"a": 1, "b": 1}])
async def test_under_a_flood_each_class_gets_its_share(slots, weights):
    classes = {
        name: PriorityConfig(weight=weight, engine_priority=rank) for rank, (name, weight) in enumerate(weights.items())
    }
    jobs = max(40 * sum(weights.values()), 100 * slots)
    done = await flood(Site(slots, classes=classes, beyond=1), 0.002, jobs, *classes)
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        slack = max(0.1 * share, 2 * slots / jobs)
        assert slack < share / 2, "a bound that a class without its share would keep bounds nothing"
        assert abs(done[name] / done.total() - share) <= slack, done


async def test_a_class_that_pauses_is_owed_nothing_for_it():
    site = Site(slots=1, classes={"a": PriorityConfig(weight=1), "b": PriorityConfig(weight=1)})
    for _ in range(50):
        (await site.enter("a")).leave()
    place = await site.enter("a")
    tasks = [site.ask(name) for name in "bbbbbbaaaaaa"]
    order = []
    for _ in range(len(tasks)):
        await settle()
        place.leave()
        await settle()
        task = next(task for task in tasks if task.done() and task not in order)
        order.append(task)
        place = task.result()
    names = ["bbbbbbaaaaaa"[tasks.index(task)] for task in order]
    assert abs(names[:6].count("a") - 3) <= 1, names


async def test_a_lower_class_holds_no_more_than_its_share_while_a_higher_one_is_active():
    site = Site(slots=10)
    (place,) = await site.fill("interactive")
    place.leave()
    tasks = [site.ask("batch") for _ in range(10)]
    await settle()
    assert site.count("baton_ongoing", priority="batch") == 3
    assert site.count("baton_queued", priority="batch") == 7
    await asyncio.wait_for(asyncio.gather(*(site.enter() for _ in range(7))), 1)
    for task in tasks:
        task.cancel()


async def test_alone_a_lower_class_leaves_some_places_free():
    site = Site(slots=8)
    tasks = [site.ask("batch") for _ in range(10)]
    await settle()
    assert site.count("baton_ongoing", priority="batch") == 6
    for task in tasks:
        task.cancel()


async def test_gateways_that_share_an_engine_share_what_lower_classes_may_hold():
    site = Site(slots=40, sharers=4)
    await site.fill("interactive")
    tasks = [site.ask("batch") for _ in range(10)]
    await settle()
    assert site.count("baton_ongoing", priority="batch") == 3
    for task in tasks:
        task.cancel()


async def test_lower_classes_together_leave_a_place():
    classes = {name: PriorityConfig(engine_priority=rank) for rank, name in enumerate("abcd")}
    site = Site(slots=3, classes=classes)
    (await site.enter("a")).leave()
    tasks = [site.ask(name) for name in "bbccdd"]
    await settle()
    assert site.count("baton_ongoing") == 2
    await asyncio.wait_for(site.enter("a"), 1)
    for task in tasks:
        task.cancel()


async def test_a_lower_job_lets_those_that_were_there_first_have_their_first_token():
    site = Site(slots=10)
    early, late = await site.enter(), None
    batch = site.ask("batch")
    await settle()
    assert not batch.done()
    late = await site.enter()  # comes later, so nobody waits for it
    early.started()
    await settle()
    assert batch.done()
    late.leave()


async def test_a_higher_job_that_fails_before_its_first_token_holds_nobody_up():
    site = Site(slots=10)
    early = await site.enter()
    batch = site.ask("batch")
    await settle()
    early.leave()
    await settle()
    assert batch.done()


async def test_one_job_goes_on_beyond_the_places():
    site = Site(slots=2, beyond=1)
    await site.fill("interactive", "interactive")
    tasks = [site.ask(), site.ask()]
    await settle()
    assert [task.done() for task in tasks] == [True, False]
    tasks[1].cancel()


async def test_a_full_line_refuses_and_says_when_to_come_back():
    site = Site(slots=1, limit=2)
    place = await site.enter()
    waiting = site.ask()
    await settle()
    with pytest.raises(Overloaded) as refused:
        await site.enter()
    assert (refused.value.stage, refused.value.retry_after_seconds) == ("generator", 1)
    assert site.count("baton_sheds_total", priority="interactive") == 1
    place.leave()
    (await waiting).leave()


async def test_the_newest_of_the_lowest_class_makes_room_for_a_higher_one():
    classes = {name: PriorityConfig(engine_priority=rank) for rank, name in enumerate(["high", "middle", "low"])}
    site = Site(slots=1, limit=4, classes=classes)
    place = await site.enter("high")
    tasks = {name: site.ask(name.split()[0]) for name in ("low 1", "low 2", "middle 1")}
    await settle()
    high = site.ask("high")
    await settle()
    assert [name for name, task in tasks.items() if task.done()] == ["low 2"]
    with pytest.raises(Overloaded) as refused:
        await tasks["low 2"]
    assert refused.value.retry_after_seconds
    assert site.count("baton_sheds_total", priority="low") == 1
    with pytest.raises(Overloaded):  # nobody lies below the lowest
        await site.enter("low")
    place.leave()
    for task in (high, tasks["middle 1"], tasks["low 1"]):
        task.cancel()
    await asyncio.gather(high, *tasks.values(), return_exceptions=True)


async def test_a_class_has_a_bound_of_its_own():
    classes = {
        **CLASSES,
        "batch": PriorityConfig(engine_priority=10, max_queued=1),
        "none": PriorityConfig(max_queued=0),
    }
    site = Site(slots=1, classes=classes)
    place = await site.enter("none")
    waiting = site.ask("batch")
    await settle()
    for name in ("batch", "none"):
        with pytest.raises(Overloaded):
            await site.enter(name)
    interactive = site.ask()
    await settle()
    assert site.count("baton_queued") == 2
    place.leave()
    for task in (waiting, interactive):
        task.cancel()


async def test_retry_after_follows_the_pace_of_the_line():
    site = Site(slots=1, limit=21)
    for _ in range(6):
        place = await site.enter()
        await asyncio.sleep(0.1)
        place.leave()
    place = await site.enter()
    tasks = [site.ask() for _ in range(20)]
    await settle()
    with pytest.raises(Overloaded) as refused:
        await site.enter()
    assert 2 <= refused.value.retry_after_seconds <= 4  # 21 jobs at 10 a second
    for task in tasks:
        task.cancel()


async def test_a_deadline_ends_the_wait():
    site = Site(slots=1)
    place = await site.enter()
    with pytest.raises(DeadlineExceeded) as late:
        await site.enter(seconds=0.02)
    assert late.value.stage == "generator"
    assert site.count("baton_queued") == 0
    place.leave()
    (await site.enter()).leave()


async def test_whoever_hangs_up_leaves_the_queue_at_once():
    site = Site(slots=1)
    place = await site.enter()
    gone, next_ = site.ask(), site.ask()
    await settle()
    gone.cancel()
    await settle()
    assert site.count("baton_queued") == 1
    place.leave()
    assert await asyncio.wait_for(next_, 1)


async def test_a_place_given_to_somebody_who_leaves_in_the_same_moment_is_given_on():
    site = Site(slots=1)
    place = await site.enter()
    gone, next_ = site.ask(), site.ask()
    await settle()
    place.leave()
    gone.cancel()
    assert await asyncio.wait_for(next_, 1)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert site.count("baton_ongoing") == 1


async def test_a_place_is_given_back_once():
    site = Site(slots=1)
    place = await site.enter()
    place.leave()
    place.leave()
    place.started()
    assert site.count("baton_ongoing") == 0
    await site.enter()
    waiting = site.ask()
    await settle()
    assert not waiting.done()
    waiting.cancel()


async def test_changed_weights_hold_from_the_next_job_on():
    site = Site(slots=10)
    await site.fill("interactive")
    site.classes = {**CLASSES, "batch": PriorityConfig(weight=4, engine_priority=10)}
    tasks = [site.ask("batch") for _ in range(10)]
    await settle()
    assert site.count("baton_ongoing", priority="batch") == 6
    for task in tasks:
        task.cancel()


async def test_more_places_are_used_as_soon_as_somebody_leaves():
    site = Site(slots=1)
    place = await site.enter()
    tasks = [site.ask() for _ in range(4)]
    await settle()
    site.slots = 3
    place.leave()
    await settle()
    assert [task.done() for task in tasks] == [True, True, True, False]
    tasks[-1].cancel()


async def test_nobody_overtakes_those_who_wait_when_there_are_more_places():
    site = Site(slots=1)
    await site.enter("batch")
    waiting = site.ask("batch")
    await settle()
    site.slots = 2
    newcomer = site.ask("batch")
    await settle()
    site.slots = 3
    third = site.ask()
    await settle()
    assert (waiting.done(), third.done()) == (True, True)
    newcomer.cancel()


async def test_a_step_takes_no_longer_in_a_long_queue():
    async def seconds(queued):
        site = Site(slots=1)
        place = await site.enter()
        tasks = [site.ask(priority, 60) for priority in itertools.islice(itertools.cycle(CLASSES), queued)]
        await settle()
        began = time.process_time()
        for _ in range(50):
            place.leave()
            await settle()
            place = next(task for task in tasks if task.done()).result()
            tasks = [task for task in tasks if not task.done()]
        elapsed = time.process_time() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return elapsed

    await seconds(100)
    assert await seconds(4000) < 20 * await seconds(100) + 0.5


async def test_a_class_that_is_taken_out_of_the_settings_ranks_above_nobody():
    site = Site(slots=8, classes={"urgent": PriorityConfig(weight=1, engine_priority=-5), **CLASSES})
    (place,) = await site.fill("urgent")
    site.classes = dict(CLASSES)
    await site.fill(*["interactive"] * 3)
    place.leave()
    await site.fill(*["interactive"] * 5)
    assert site.line.jobs == 8
