"""The way of a rollout: on, held, paused, back."""

import pytest

from app.errors import ConfigError, StageUnavailable
from app.ops.rollout.runner import abort
from app.ops.rollout.state import Settings
from app.ops.rollout.target import Held
from tests.unit.ops.rollout.fakes import Crash, World, plan


def why(world):
    return world.state.log[-1].text


def test_a_good_canary_is_promoted_step_by_step():
    world = World(weights={"old": 3.0, "new": 0.0})
    assert world.run().phase == "promoted"
    assert world.shares == [0, 10, 50, 100]
    assert world.settings.weights == {"old": 0.0, "new": 3.0}
    assert world.reasons == ["CanaryStarted", "CanaryStep", "CanaryStep", "CanaryPromoted"]
    assert [number for number, _ in world.events] == [1, 2, 3, 4]
    assert world.time - 1000 >= 120


def test_gates_look_back_no_further_than_to_the_beginning_of_the_step():
    class Watched(World):
        def measure(self, judgement, scope):
            looks.append((self.time - scope.window_seconds, self.settings.weights["new"], scope))
            return super().measure(judgement, scope)

    looks, world = [], Watched()
    steps = [{"share": 10, "seconds": 60}, {"share": 50, "seconds": 300}]
    assert world.run(plan(windowSeconds=100, steps=steps)).phase == "promoted"
    began = {weight: min(scope.since for _, other, scope in looks if other == weight) for _, weight, _ in looks}
    assert all(back >= began[weight] for back, weight, _ in looks)
    windows = [scope.window_seconds for _, _, scope in looks]
    assert min(windows) <= 10
    assert max(windows) == 100


def test_faults_of_an_earlier_step_do_not_count_in_a_later_one():
    class Past(World):
        def measure(self, judgement, scope):
            first = [at for at, settings in zip(self.times, self.history, strict=True) if settings.weights["new"] > 0.2]
            reaches_back = bool(first) and self.time - scope.window_seconds < first[0]
            return 0.5 if reaches_back and judgement.title == "errors" else super().measure(judgement, scope)

        @property
        def times(self):
            while len(self.noted) < len(self.history):
                self.noted.append(self.time)
            return self.noted

        def write(self, snapshot, state):
            super().write(snapshot, state)
            assert self.times

    world = Past()
    world.noted = []
    assert world.run().phase == "promoted"


@pytest.mark.parametrize(
    ("gate", "rate", "count", "phase"),
    [
        ({"gate": "errors", "bound": 0.1}, 1 / 3, 3, "running"),
        ({"gate": "errors", "bound": 0.1}, 30 / 90, 90, "rolledBack"),
        ({"gate": "sloBurn", "bound": 20}, 1 / 3 / 0.005, 3, "running"),
        ({"gate": "sloBurn", "bound": 20}, 30 / 90 / 0.005, 90, "rolledBack"),
        ({"gate": "grounded", "bound": 0.9}, 2 / 3, 3, "running"),
        ({"gate": "grounded", "bound": 0.9}, 60 / 90, 90, "rolledBack"),
    ],
)
def test_shares_that_chance_explains_roll_nothing_back(gate, rate, count, phase):
    world = World()
    world.values, world.count = {gate["gate"]: rate}, count
    world.run(plan(gates=[gate | {"minRequests": 1}]))
    assert (world.time < 1050) == (phase == "rolledBack")
    assert world.shares == [0, 10, 0], "what stays in doubt is not promoted either"
    assert ("more have to tell" in why(world)) == (phase == "running")


def test_a_relative_share_counts_the_chance_of_both():
    gate = {"gate": "errors", "bound": 1.5, "relative": True}
    world = World()
    world.values = {("errors", "new"): 3 / 40, ("errors", "old"): 1 / 40}
    world.count = 40
    assert world.run(plan(gates=[gate])).phase == "rolledBack"
    assert "could not be judged" in why(world)
    world = World()
    world.values = {("errors", "new"): 3 / 40, ("errors", "old"): 1 / 40}
    world.count = 4000
    assert world.run(plan(gates=[gate])).phase == "rolledBack"
    assert "errors is broken at a share of 10 %: 0.075, to be at most 0.0375 (1.5 times 0.025)" in why(world)


def test_each_gate_counts_what_its_own_number_is_taken_of():
    world = World()
    world.values["grounded"] = 0.95
    world.counts = {"grounded": 4}
    gates = [{"gate": "errors", "bound": 0.02}, {"gate": "grounded", "bound": 0.9}]
    assert world.run(plan(gates=gates)).phase == "rolledBack"
    assert "grounded: 4 of at least 20 judged answers of new in" in why(world)
    assert "errors" not in why(world)


@pytest.mark.parametrize(
    ("gate", "value", "told"),
    [
        ({"gate": "errors", "bound": 0.02}, {"errors": 0.5}, "errors is broken at a share of 10 %: 0.5, to be at most"),
        (
            {"gate": "latencyP95", "bound": 1.2, "relative": True},
            {("latencyP95", "new"): 130.0, ("latencyP95", "old"): 100.0},
            "130, to be at most 120 (1.2 times 100)",
        ),
        ({"gate": "latencyP99", "bound": 500}, {"latencyP99": 501}, "latencyP99 is broken"),
        ({"gate": "timeToFirstTokenP95", "bound": 500}, {"timeToFirstTokenP95": 501}, "timeToFirstTokenP95 is broken"),
        ({"gate": "grounded", "bound": 0.9}, {"grounded": 0.8}, "0.8, to be at least 0.9"),
        ({"gate": "sloBurn", "bound": 14.4}, {"sloBurn": 20}, "sloBurn is broken"),
        ({"name": "own", "query": "up", "bound": 1, "comparison": "atLeast"}, {"own": 0}, "own is broken"),
    ],
)
def test_a_broken_gate_rolls_back(gate, value, told):
    world = World()
    world.values = value
    assert world.run(plan(gates=[gate])).phase == "rolledBack"
    assert world.shares == [0, 10, 0]
    assert told in why(world)
    assert world.events[-1][1] == "CanaryRolledBack"


def test_a_fault_of_a_later_step_rolls_back():
    world = World(weights={"old": 1.0, "new": 1.0})
    world.at(90, lambda: world.values.update(errors=0.5))
    assert world.run().phase == "rolledBack"
    assert world.shares == [50, 0, 10, 50, 0]
    assert world.settings.weights == {"old": 2.0, "new": 0.0}


def test_a_gate_may_be_broken_a_few_times():
    world = World()
    world.at(20, lambda: world.values.update(errors=0.5))
    world.at(40, lambda: world.values.update(errors=0.0))
    assert world.run(plan(gates=[{"gate": "errors", "bound": 0.1, "failures": 5}])).phase == "promoted"
    world = World()
    world.values["errors"] = 0.5
    assert world.run(plan(gates=[{"gate": "errors", "bound": 0.1, "failures": 3}])).phase == "rolledBack"
    assert 20 <= world.time - 1000 < 60


def test_too_few_requests_hold_a_step_and_then_roll_back():
    world = World()
    world.count = 19
    assert world.run().phase == "rolledBack"
    assert "could not be judged for 120 s: errors: 19 of at least 20 requests of new in" in why(world)
    assert world.reasons == ["CanaryStarted", "CanaryStep", "CanaryHeld", "CanaryRolledBack"]
    assert 180 <= world.time - 1000 < 260


def test_too_few_requests_to_compare_with_hold_a_step():
    class Lonely(World):
        def basis(self, judgement, scope):
            return 3 if scope.variant == "old" else 500

    world = Lonely()
    assert world.run().phase == "rolledBack"
    assert "latencyP95: 3 of at least 20 answered requests of old" in why(world)
    assert "errors" not in why(world)


def test_a_held_step_goes_on_when_requests_come():
    world = World()
    world.count = 0
    world.at(100, lambda: setattr(world, "count", 50))
    assert world.run().phase == "promoted"
    assert "CanaryResumed" in world.reasons


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_no_number_is_no_good_number(missing):
    world = World()
    world.values = {"errors": missing, "latencyP95": 1}
    assert world.run().phase == "rolledBack"
    assert "no number for new" in why(world)
    world = World()
    world.values = {"errors": 0, ("latencyP95", "new"): 1, ("latencyP95", "old"): missing}
    assert world.run().phase == "rolledBack"
    assert "no number for old to compare with" in why(world)


def test_a_prometheus_that_is_down_holds_at_once_and_then_rolls_back():
    world = World()
    world.at(15, lambda: setattr(world, "down", True))
    assert world.run().phase == "rolledBack"
    assert "Prometheus does not answer" in why(world)
    assert world.time - 1000 < 15 + 120 + 30


def test_a_prometheus_that_comes_back_lets_it_go_on():
    world = World()
    world.at(15, lambda: setattr(world, "down", True))
    world.at(100, lambda: setattr(world, "down", False))
    assert world.run().phase == "promoted"


def test_a_condition_pauses_for_as_long_as_it_lasts():
    wanted = plan(pauseWhile=[{"name": "freeze", "query": "vector(1)", "bound": 0}])
    world = World()
    world.values["freeze"] = 1
    world.at(5000, lambda: world.values.update(freeze=0))
    assert world.run(wanted).phase == "promoted"
    assert world.reasons[:3] == ["CanaryStarted", "CanaryPaused", "CanaryResumed"]
    assert world.time > 6000


def test_a_paused_canary_that_breaks_a_gate_goes_back():
    wanted = plan(pauseWhile=[{"name": "freeze", "query": "vector(1)", "bound": 0}])
    world = World()
    world.values["freeze"] = 0
    world.at(30, lambda: world.values.update(freeze=1))
    world.at(500, lambda: world.values.update(errors=0.5))
    assert world.run(wanted).phase == "rolledBack"


def test_at_a_share_of_100_there_is_nothing_to_compare_with():
    world = World()
    world.at(15, lambda: world.values.update({("latencyP95", "old"): None}))
    assert world.run(plan(steps=[{"share": 100, "seconds": 60}])).phase == "promoted"


def test_no_traffic_before_the_applications_run():
    world = World()
    world.starting = {"model-b": "deploying"}
    world.at(200, world.starting.clear)
    assert world.run().phase == "promoted"
    assert world.time > 1300
    world = World()
    world.starting = {"model-b": "deploy_failed"}
    assert world.run().phase == "rolledBack"
    assert world.shares == [0]
    assert "not running after 300 s: model-b is deploy_failed" in why(world)


def test_a_plan_that_ended_is_not_begun_again_unless_asked():
    world = World()
    world.values["errors"] = 0.5
    world.run()
    world.values["errors"] = 0
    assert world.run().phase == "rolledBack"
    assert world.shares == [0, 10, 0]
    assert world.run(again=True).phase == "promoted"


def test_another_name_is_another_rollout():
    world = World()
    world.values["errors"] = 0.5
    world.run()
    world.values["errors"] = 0
    assert world.run(plan(name="v3")).phase == "promoted"


def test_another_plan_does_not_take_a_rollout_over():
    world = World(crash_at=12)
    with pytest.raises(Crash):
        world.run()
    with pytest.raises(ConfigError, match="v2 is under way with another plan"):
        world.run(plan(pollSeconds=9))


def test_a_second_runner_is_refused():
    world = World()
    world.holder = "somebody"
    with pytest.raises(Held):
        world.run()
    assert world.state is None


def test_somebody_elses_change_stops_it():
    world = World()

    def change():
        world.settings = Settings(weights={"old": 0.3, "new": 0.7})
        world.version += 1

    world.at(30, change)
    with pytest.raises(Held, match=r"new 0\.7, old 0\.3, and it had set new 0\.1, old 0\.9"):
        world.run()
    assert world.settings.weights == {"old": 0.3, "new": 0.7}
    assert world.state.phase == "running"


@pytest.mark.parametrize("atomic", [True, False])
def test_an_upgrade_that_puts_the_first_weights_back_stops_it(atomic):
    world = World(atomic=atomic)

    def change():
        world.settings = Settings(weights={"old": 1.0, "new": 0.0})
        world.version += 1

    world.at(30, change)
    with pytest.raises(Held, match="Somebody else"):
        world.run()
    assert world.settings.weights == {"old": 1.0, "new": 0.0}


def test_a_change_that_touches_nothing_of_ours_does_not_matter():
    class Busy(World):
        tries = 0

        def write(self, snapshot, state):
            self.tries += 1
            self.version += self.tries % 2
            super().write(snapshot, state)

    world = Busy()
    assert world.run().phase == "promoted"


def test_an_abort_ends_it_whoever_runs_it():
    world = World()
    world.at(30, lambda: abort(world, world.state, world.time))
    assert world.run().phase == "rolledBack"
    assert world.reasons[-1] == "CanaryAborted"
    assert world.shares == [0, 10, 0]
    with pytest.raises(ConfigError, match="nothing to abort"):
        abort(world, world.state, world.time)


def test_a_target_that_is_away_for_a_while_is_waited_for():
    class Away(World):
        def read(self, wanted):
            if 1020 < self.time < 1200:
                raise StageUnavailable("The Kubernetes API does not answer.")
            return super().read(wanted)

    world = Away()
    assert world.run().phase == "promoted"

    class Gone(World):
        def read(self, wanted):
            if self.time > 1020:
                raise StageUnavailable("The Kubernetes API does not answer.")
            return super().read(wanted)

    with pytest.raises(Held, match="cannot go on: The Kubernetes API does not answer"):
        Gone().run()


def test_an_event_that_cannot_be_made_stops_nothing():
    class Mute(World):
        def announce(self, state, entry):
            raise StageUnavailable("no events")

    world = Mute()
    assert world.run().phase == "promoted"
    assert "no event was made of it: no events" in world.said


@pytest.mark.parametrize("weights", [{"old": 0.0, "new": 0.0}, {"old": 0.0, "new": 1.0}])
def test_weights_that_leave_nothing_to_move_are_refused(weights):
    world = World(weights=weights)
    with pytest.raises(ConfigError, match=r"weight 0|no traffic"):
        world.run()
