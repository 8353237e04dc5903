"""The same end, wherever the runner of a rollout dies."""

import pytest

from tests.unit.ops.rollout.fakes import Crash, World, blue_green, green_world, plan


def outcome(world):
    return world.state.phase, world.settings, world.reasons, world.history


def make(kind, atomic, crash_at=None):
    wanted, options = plan(), {}
    if kind == "in place":
        world = green_world(3, atomic=atomic, crash_at=crash_at)
        wanted, options = blue_green(), {"in_place": True, "sizes": (3, 3)}
    else:
        world = World(atomic=atomic, crash_at=crash_at)
    if kind == "bad":
        world.values["errors"] = 0.5
    return world, wanted, options


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("kind", ["good", "bad", "in place"])
def test_wherever_the_runner_dies_the_end_is_the_same(kind, atomic):
    whole, wanted, options = make(kind, atomic)
    whole.run(wanted, **options)
    assert whole.effects > 5
    for crash_at in range(1, whole.effects + 1):
        world, wanted, options = make(kind, atomic, crash_at)
        with pytest.raises(Crash):
            world.run(wanted, **options)
        world.run(wanted, **options)
        assert outcome(world) == outcome(whole), crash_at
        assert {number for number, _ in world.events} == {entry.number for entry in world.state.log}
