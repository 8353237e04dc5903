"""The engine loop over the fake engine: what requests get, and what the engine is left with, however they end."""

import asyncio
import threading

import pytest

from app.apps.engine_loop.contract import Answer, LoopRequest
from app.apps.engine_loop.hooks import NoHook, StepMeter, load_hooks
from app.apps.engine_loop.loop import EngineLoop
from app.errors import ConfigError, InvalidRequest, Overloaded, ReplicaLost, StageUnavailable
from app.metrics import MemoryMetrics
from app.testing.step_engine import FakeStepEngine

SECONDS = 10


class Site:
    """A running loop over a fake engine."""

    def __init__(self, hooks=(), most=64, max_step_seconds=120.0, **engine):
        self.engine = FakeStepEngine(**engine)
        self.metrics = MemoryMetrics()
        self.loop = EngineLoop(lambda: self.engine, hooks, most, self.metrics, max_step_seconds)

    async def __aenter__(self):
        await self.loop.start()
        return self

    async def __aexit__(self, *_):
        if self.engine.hang is not None:
            self.engine.hang.set()
        await self.loop.stop()

    async def idle(self):
        """Wait until the engine holds nothing."""
        async with asyncio.timeout(SECONDS):
            while self.engine.unfinished() or self.loop.report()["unfinished"]:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.005)


def request(name="a", **sampling):
    return LoopRequest(name, (1, 2, 3), {"max_tokens": 6, **sampling})


async def read(site, asked):
    pieces = [piece async for piece in site.loop.generate(asked)]
    return "".join(piece.text for piece in pieces), pieces[-1].finish_reason


async def test_an_answer_comes_whole_and_says_how_it_ended():
    async with Site() as site:
        assert await read(site, request()) == ("Baton answers step by step.", "length")
        assert await read(site, request("b", max_tokens=2)) == ("Baton answers", "length")
        assert await read(site, request("c", max_tokens=100)) == ("Baton answers step by step.", "stop")


async def test_one_thread_of_its_own_touches_the_engine():
    async with Site() as site:
        await read(site, request())
    assert site.engine.threads == {"baton-engine-loop"}
    assert site.engine.closed


async def test_steps_are_shared():
    meter = StepMeter()
    async with Site([meter], seconds_per_step=0.02) as site:
        answers = await asyncio.gather(*(read(site, request(str(number))) for number in range(8)))
    assert {text for text, _ in answers} == {"Baton answers step by step."}
    assert meter.report()["tokens"] == 48
    assert meter.report()["count"] < 16
    assert meter.report()["most_running"] == 8


async def test_a_step_does_not_hold_the_event_loop_up():
    async with Site() as site:
        site.engine.hang = threading.Event()
        asked = asyncio.create_task(read(site, request()))
        await asyncio.sleep(0.05)  # on a loop that the step held up nobody would ever let it go on
        assert not asked.done()
        site.engine.hang.set()
        assert (await asked)[1] == "length"


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_many_hang_ups_leave_the_engine_with_nothing(pieces):
    async with Site(seconds_per_step=0.002, most=200) as site:

        async def hang_up(number):
            stream = site.loop.generate(request(str(number), max_tokens=10_000, ignore_eos=True))
            if not pieces:  # cancelled while it waits for its first piece
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.0001):
                        await anext(stream)
            for _ in range(pieces):
                await anext(stream)
            await stream.aclose()

        await asyncio.gather(*(hang_up(number) for number in range(100)))
        await site.idle()
        assert len(site.engine.aborted) + (100 - len(site.engine.seen)) == 100
        assert site.metrics.total("baton_cancels_total", stage="engine_loop") == 100
        assert await read(site, request("after")) == ("Baton answers step by step.", "length")


async def test_a_full_loop_refuses_at_once_and_says_when_to_come_again():
    async with Site(most=2, seconds_per_step=0.01) as site:
        streams = [site.loop.generate(request(str(n), max_tokens=1000, ignore_eos=True)) for n in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(Overloaded) as refused:
            await anext(site.loop.generate(request("c")))
        assert refused.value.headers()["Retry-After"] == "1"
        assert site.metrics.total("baton_sheds_total", stage="engine_loop") == 1
        for stream in streams:
            await stream.aclose()
        assert (await read(site, request("c")))[1] == "length"


async def test_a_refused_request_costs_only_itself():
    async with Site() as site:
        with pytest.raises(InvalidRequest):
            await read(site, request("bad", refuse=True))
        assert (await read(site, request()))[1] == "length"
        await site.idle()


async def test_an_engine_that_dies_fails_all_and_then_the_health_check():
    async with Site(die_after=3, seconds_per_step=0.01) as site:
        site.loop.check()
        asked = [read(site, request(str(number), max_tokens=100, ignore_eos=True)) for number in range(5)]
        failures = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(failure) for failure in failures} == {ReplicaLost}
        assert failures[0].retry_after_seconds
        with pytest.raises(ReplicaLost):
            site.loop.check()
        with pytest.raises(ReplicaLost):
            await read(site, request("late"))
    assert site.engine.closed


async def test_a_step_that_hangs_fails_the_health_check():
    async with Site(max_step_seconds=0.05) as site:
        site.engine.hang = threading.Event()
        asked = asyncio.create_task(read(site, request()))
        await asyncio.sleep(0.2)
        with pytest.raises(ReplicaLost):
            site.loop.check()
        site.engine.hang.set()
        await asked
        site.loop.check()


async def test_an_engine_that_cannot_be_made_says_why():
    def fail():
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await EngineLoop(fail, [], 1, MemoryMetrics()).start()


async def test_a_loop_that_stops_fails_what_is_there():
    async with Site(seconds_per_step=0.01) as site:
        stream = site.loop.generate(request(max_tokens=1000, ignore_eos=True))
        await anext(stream)
        await site.loop.stop()
        with pytest.raises(StageUnavailable):
            [piece async for piece in stream]
    assert site.engine.unfinished() == 0


async def test_a_slow_reader_gets_all_in_fewer_pieces():
    async with Site() as site:
        stream = site.loop.generate(request())
        first = await anext(stream)
        await asyncio.sleep(0.1)
        rest = [piece async for piece in stream]
        assert first.text + "".join(piece.text for piece in rest) == "Baton answers step by step."
        assert len(rest) <= 1


# --- hooks ------------------------------------------------------------------------------------------------------------


class Recorder(NoHook):
    """Notes all that it is told, in order."""

    name = "recorder"

    def __init__(self):
        self.told = []

    def on_add(self, request):
        self.told.append(("add", request.id))

    def before_step(self, running):
        self.told.append(("before", running))

    def after_step(self, outputs):
        self.told.append(("after", len(outputs)))

    def on_end(self, request):
        self.told.append(("end", request.id))


class Faulty(NoHook):
    """Raises in one of its methods."""

    name = "faulty"

    def __init__(self, method):
        setattr(self, method, self.fail)
        self.calls = 0

    def fail(self, *_):
        self.calls += 1
        raise RuntimeError("a fault of the hook's own")


class Shortcut(NoHook):
    """Answers by itself."""

    name = "shortcut"

    def on_add(self, request):
        return Answer("at once", (7,), "stop")


class Mistaken(NoHook):
    """Returns what is no answer."""

    name = "mistaken"

    def on_add(self, request):
        return "at once"


async def test_a_hook_that_cannot_report_or_gives_no_answer_costs_nothing():
    async with Site([Mistaken(), Faulty("report"), StepMeter()]) as site:
        assert (await read(site, request()))[1] == "length"
        assert site.loop.report()["steps"]["count"] > 0
        assert "faulty" not in site.loop.report()


async def test_hooks_are_told_in_order():
    hook = Recorder()
    async with Site([hook]) as site:
        await read(site, request(max_tokens=2))
        await site.idle()
    step = [("before", 1), ("after", 1)]
    assert hook.told == [("add", "a"), *step, *step, ("end", "a")]


async def test_hooks_are_told_of_the_end_of_what_was_hung_up_on():
    hook = Recorder()
    async with Site([hook], seconds_per_step=0.002) as site:
        stream = site.loop.generate(request(max_tokens=1000, ignore_eos=True))
        await anext(stream)
        await stream.aclose()
        await site.idle()
    assert hook.told[-1] == ("end", "a")


async def ends(hook, *names):
    """Wait until the loop's thread has told the hook of the ends; returns how often it told each."""
    async with asyncio.timeout(SECONDS):
        while not all(("end", name) in hook.told for name in names):  # noqa: ASYNC110 - another thread's
            await asyncio.sleep(0.005)
    return [hook.told.count(("end", name)) for name in names]


async def test_hooks_are_told_once_of_each_end_when_the_loop_stops():
    hook = Recorder()
    async with Site([hook], seconds_per_step=0.002, places=1) as site:
        assert (await read(site, request("done")))[1] == "length"
        asked = [asyncio.create_task(read(site, request(name, max_tokens=10**6, ignore_eos=True))) for name in "ab"]
        await asyncio.sleep(0.05)
    assert [str(fault) for fault in await asyncio.gather(*asked, return_exceptions=True)] == [
        "The engine loop is stopping."
    ] * 2
    assert await ends(hook, "done", "a", "b") == [1, 1, 1]


@pytest.mark.parametrize("where", ["step", "add"])
async def test_hooks_are_told_once_of_each_end_when_the_engine_dies(where):
    def die(_):
        raise RuntimeError("the fake engine died")

    hook, faulty = Recorder(), Faulty("on_end")
    async with Site([faulty, hook], die_after=3 if where == "step" else None) as site:
        if where == "add":
            site.engine.add = die
        asked = [read(site, request(name, max_tokens=10**6, ignore_eos=True)) for name in "ab"]
        assert all(isinstance(found, ReplicaLost) for found in await asyncio.gather(*asked, return_exceptions=True))
        seen = [name for name in "ab" if ("add", name) in hook.told]
        assert await ends(hook, *seen) == [1] * len(seen)
        assert seen
    assert faulty.calls == 1
    assert site.engine.closed


async def test_hooks_are_told_once_of_a_request_that_is_refused():
    hook = Recorder()
    async with Site([hook]) as site:
        with pytest.raises(InvalidRequest):
            await read(site, request(refuse=True))
    assert await ends(hook, "a") == [1]


async def test_a_hook_s_answer_goes_out_and_the_engine_sees_nothing():
    async with Site([Recorder(), Shortcut()]) as site:
        (piece,) = [piece async for piece in site.loop.generate(request())]
        assert (piece.text, piece.finish_reason, piece.cached) == ("at once", "stop", True)
    assert site.engine.seen == []


def test_hooks_are_found_by_their_import_path():
    (found,) = load_hooks(["app.apps.engine_loop.hooks:StepMeter"])
    assert found.name == "steps"
    for path in ("nobody.here:Hook", "app.apps.engine_loop.hooks:Nobody", "app.apps.engine_loop.hooks:Hook"):
        with pytest.raises(ConfigError, match=path.partition(":")[0]):
            load_hooks([path])


@pytest.mark.parametrize("method", ["on_add", "before_step", "after_step", "on_end"])
async def test_a_hook_that_raises_is_dropped_and_costs_no_answer(method):
    faulty, good = Faulty(method), Recorder()
    async with Site([faulty, good]) as site:
        for name in "ab":
            assert (await read(site, request(name)))[1] == "length"
        await site.idle()
    assert faulty.calls == 1
    assert good.told.count(("end", "b")) == 1
