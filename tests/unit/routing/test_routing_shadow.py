"""Copies of jobs for variants in the shadow: they take nothing from the answer that somebody waits for."""

import asyncio
import time
from dataclasses import replace

import pytest

from app.config.priorities import DEFAULT_PRIORITIES
from app.entrance import Entrance, Room
from app.errors import EngineFailed, GuardrailBlocked
from app.jobs import Finished, Shadow
from app.metrics import MemoryMetrics
from app.routing.pipeline import MAX_SHADOWS
from app.testing.engine import FakeEngine
from tests.unit.site import Site, job

OUTCOMES = "baton_variant_outcomes_total"


def with_shadow(**given):
    seconds = given.pop("seconds", 5.0)
    copy = job(variant="canary", way="shadow", priority="batch", request_id="r1.canary", **given)
    return job(variant="stable", way="weight", shadows=(Shadow("canary", "default", copy, seconds),))


async def settled(site, outcome, count=1, seconds=5.0):
    """Wait until that many copies have ended so."""
    end = time.monotonic() + seconds
    while site.metrics.total(OUTCOMES, way="shadow", outcome=outcome) < count:
        assert time.monotonic() < end, outcome
        await asyncio.sleep(0.01)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, capacity=8)


async def test_the_copy_is_counted_and_kept_apart(site):
    events = await site.ask(with_shadow())
    assert isinstance(events[-1], Finished)
    await settled(site, "answered")
    assert site.metrics.total(OUTCOMES, variant="stable", way="weight", outcome="answered") == 1
    first = "baton_time_to_first_token_milliseconds"
    assert site.metrics.count(first, variant="stable", profile="default") == 1
    assert site.metrics.count(first, variant="canary~shadow") == 1
    assert site.metrics.count(first, variant="canary") == 0
    assert site.metrics.total("baton_guardrail_total", variant="canary~shadow", direction="input") == 1


async def test_it_begins_when_the_answer_is_complete(site):
    asked = []
    chat = site.pipeline.chat
    async for event in chat(with_shadow()):
        asked.append((type(event).__name__, len(site.pipeline._copies)))
    assert [copies for name, copies in asked if name != "Finished"] == [0] * (len(asked) - 1)
    await settled(site, "answered")


async def test_a_slow_or_broken_shadow_neither_delays_nor_fails_the_answer(site):
    slow = with_shadow(seconds=0.3)
    site.runners["guardrail"].delay = 0.05
    began = time.monotonic()
    assert isinstance((await site.ask(slow))[-1], Finished)
    alone = time.monotonic() - began
    site.runners["guardrail"].delay = 5.0  # for the copy: its deadline ends it
    await settled(site, "timeout")
    assert alone < 2

    site.runners["guardrail"].delay = 0.0
    broken = with_shadow(model="nowhere")
    assert isinstance((await site.ask(broken))[-1], Finished)
    await settled(site, "refused")


async def test_no_copy_of_what_failed_was_blocked_or_was_left(site):
    with pytest.raises(GuardrailBlocked):
        await site.ask(replace(with_shadow(), messages=job("a bomb").messages))
    left = site.pipeline.chat(with_shadow())
    await anext(left)
    await left.aclose()
    assert not site.pipeline._copies
    outcomes = {name: site.metrics.total(OUTCOMES, outcome=name) for name in ("blocked", "cancelled")}
    assert outcomes == {"blocked": 1, "cancelled": 1}
    assert site.metrics.total(OUTCOMES, way="shadow") == 0


async def test_a_busy_model_gets_no_copies(site):
    for _ in range(4):
        await site.entrance.enter("tiny", "interactive", time.monotonic() + 5)
    await site.ask(with_shadow())
    await settled(site, "dropped")
    assert site.metrics.total(OUTCOMES, way="shadow") == 1


async def test_the_number_of_copies_is_bounded(tmp_path):
    site = Site(tmp_path)
    shadows = with_shadow().shadows * (MAX_SHADOWS + 3)
    await site.ask(replace(job(variant="stable", way="weight"), shadows=shadows))
    await settled(site, "dropped", 3)
    await settled(site, "answered", MAX_SHADOWS)


async def test_a_copy_that_its_variant_refuses_is_counted(site):
    await site.ask(replace(with_shadow(), shadows=(Shadow("canary", "default", None, 0.0),)))
    await settled(site, "refused")


async def test_an_engine_that_breaks_is_counted_for_its_variant(tmp_path):
    site = Site(tmp_path, engine=FakeEngine(fail_after=0))
    with pytest.raises(EngineFailed):
        await site.ask(job(variant="stable", way="rule"))
    assert site.metrics.total(OUTCOMES, variant="stable", way="rule", outcome="failed") == 1


async def test_jobs_without_a_variant_are_not_counted(site):
    await site.ask(job())
    assert site.metrics.total(OUTCOMES) == 0


async def test_busy_is_told_per_model_and_adapters_share_their_models(site):
    assert site.pipeline.busy("tiny") == 0
    for _ in range(2):
        await site.entrance.enter("tiny", "interactive", time.monotonic() + 5)
    assert site.pipeline.busy("tiny") == site.pipeline.busy("tiny:sql") == 0.25


@pytest.mark.parametrize(("gateways", "slots", "busy"), [(1, 4, 0.5), (3, 12, 0.5), (1, None, 0.25), (1, 1, 2.0)])
async def test_busy_is_told_of_what_the_engine_works_on_at_once(gateways, slots, busy):
    room = Room(9, 9, lambda model: slots, lambda model: 8, gateways=lambda: gateways, beyond=1)
    entrance = Entrance(MemoryMetrics(), lambda: DEFAULT_PRIORITIES, room)
    for _ in range(2):
        await entrance.enter("tiny", "interactive", time.monotonic() + 5)
    assert entrance.share("tiny") == busy


async def test_busy_is_not_told_of_an_engine_that_nothing_is_known_of():
    room = Room(9, 9, lambda model: None, lambda model: None)
    assert Entrance(MemoryMetrics(), lambda: DEFAULT_PRIORITIES, room).share("tiny") is None


async def test_an_adapter_is_asked_of_its_models_engine(site):
    await site.ask(job(model="tiny:sql"))
    assert site.engine.bodies[-1]["model"] == "tiny:sql"
