"""Applications that run and fail in turn."""

import pytest

from tests.unit.ops.rollout.fakes import World, plan


def why(world):
    return world.state.log[-1].text


class Flapping(World):
    """A canary's application that runs and fails in turn, from a time on."""

    def __init__(self, *, runs, fails, begins=1030, **options):
        super().__init__(**options)
        self.period, self.fails, self.begins = runs + fails, fails, begins

    def read(self, wanted):
        failing = self.time >= self.begins and (self.time - self.begins) % self.period < self.fails
        self.starting = {"model-b": "unhealthy"} if failing else {}
        if self.time > 100_000:
            raise AssertionError("it goes on for ever")
        return super().read(wanted)


@pytest.mark.parametrize(("runs", "fails"), [(10, 10), (50, 10), (10, 50), (20, 280)])
@pytest.mark.parametrize("seconds", [60, 3600])
def test_an_application_that_runs_and_fails_in_turn_goes_back(runs, fails, seconds):
    world = Flapping(runs=runs, fails=fails)
    wanted = plan(steps=[{"share": 10, "seconds": seconds}])
    assert world.run(wanted).phase == "rolledBack"
    assert "times within a step of" in why(world)
    assert why(world).endswith("model-b is unhealthy")
    assert 1000 + 300 <= world.time <= 1000 + 300 + 2 * seconds + 100
    assert world.shares == [0, 10, 0]


def test_an_application_that_fails_once_may_begin_its_step_anew():
    world = Flapping(runs=100_000, fails=100, begins=4000)
    assert world.run(plan(steps=[{"share": 10, "seconds": 3600}])).phase == "promoted"
    assert world.time >= 4000 + 3600


def test_a_pause_is_no_time_that_was_lost():
    world = Flapping(runs=100_000, fails=100, begins=20_000)
    world.values["freeze"] = 0
    world.at(30, lambda: world.values.update(freeze=1))
    world.at(25_000, lambda: world.values.update(freeze=0))
    wanted = plan(pauseWhile=[{"name": "freeze", "query": "vector(1)", "bound": 0}])
    assert world.run(wanted).phase == "promoted"
