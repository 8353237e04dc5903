"""Blue and green: replicas that come and go with the traffic."""

import pytest

from app.errors import ConfigError
from tests.unit.ops.rollout.fakes import Crash, blue_green, green_world, scaling


def replicas(world):
    return [(found.replicas["model-a"], found.replicas["model-b"]) for found in world.history]


def counts(world):
    return [(a["min_replicas"], b["min_replicas"]) for a, b in replicas(world)]


def test_the_new_application_starts_takes_over_and_the_old_one_stops():
    world = green_world()
    assert world.run(blue_green(), sizes=(2, 2)).phase == "promoted"
    assert counts(world) == [(2, 0), (2, 2), (2, 2), (2, 2), (2, 2), (0, 2)]
    assert world.shares == [0, 0, 10, 50, 100, 100]
    assert replicas(world)[-1] == (scaling(0), scaling(2, 4))


def test_a_new_application_that_does_not_start_is_given_up():
    world = green_world()
    world.at(1, lambda: world.starting.update({"model-b": "deploying"}))
    assert world.run(blue_green(), sizes=(2, 2)).phase == "rolledBack"
    assert replicas(world)[-1] == (scaling(2, 4), scaling(0))
    assert world.shares[-1] == 0


def test_a_bad_new_application_is_given_up():
    world = green_world()
    world.at(60, lambda: world.values.update(errors=0.4))
    assert world.run(blue_green(), sizes=(2, 2)).phase == "rolledBack"
    assert replicas(world)[-1] == (scaling(2, 4), scaling(0))


def test_in_place_replicas_change_sides_one_by_one_and_one_stays():
    world = green_world(3)
    assert world.run(blue_green(), in_place=True, sizes=(3, 3)).phase == "promoted"
    assert counts(world) == [(3, 0), (3, 0), (2, 1), (2, 1), (1, 2), (1, 2), (1, 2), (0, 3)]
    assert [round(share) for share in world.shares] == [0, 0, 0, 33, 33, 67, 100, 100]
    assert all(sum(pair) <= 3 for pair in counts(world))


def test_in_place_a_bad_new_replica_goes_back():
    world = green_world(3)
    world.at(150, lambda: world.values.update(errors=0.4))
    assert world.run(blue_green(), in_place=True, sizes=(3, 3)).phase == "rolledBack"
    assert replicas(world)[-1] == (scaling(3, 4), scaling(0))
    assert min(a for a, _ in counts(world)) >= 1


def test_it_is_gone_on_with_in_the_way_it_was_begun():
    world = green_world(3, crash_at=8)
    with pytest.raises(Crash):
        world.run(blue_green(), in_place=True, sizes=(3, 3))
    with pytest.raises(ConfigError, match="begun with --in-place"):
        world.run(blue_green(), sizes=(3, 3))
