"""Plans that do not hold together are refused with what to change."""

import pytest

from app.errors import ConfigError
from tests.unit.ops.rollout.fakes import blue_green, plan

GATE = {"gate": "errors", "bound": 0.1}

WRONG = {
    "same variant": ({"canary": "old"}, "stable and canary name the same variant"),
    "no steps": ({"steps": []}, "plan.steps"),
    "falling shares": ({"steps": [{"share": 50, "seconds": 1}, {"share": 50, "seconds": 1}]}, "larger than the one"),
    "share over 100": ({"steps": [{"share": 101, "seconds": 1}]}, "plan.steps[0].share"),
    "no gates": ({"gates": []}, "plan.gates"),
    "two kinds": ({"gates": [{**GATE, "query": "up"}]}, "one of gate and query"),
    "no kind": ({"gates": [{"bound": 1}]}, "one of gate and query"),
    "unknown gate": ({"gates": [{"gate": "speed", "bound": 1}]}, "plan.gates[0].gate"),
    "no name": ({"gates": [{"query": "up", "bound": 1}]}, "name is missing"),
    "twice": ({"gates": [GATE, GATE]}, "'errors' is used twice"),
    "placeholder": ({"gates": [{"name": "x", "query": "x[{widow}]", "bound": 1}]}, "{widow}; there are {profile}"),
    "name": ({"name": "My Rollout"}, "plan.name"),
    "unknown key": ({"stepz": []}, "plan.stepz"),
    "the same application": ({"blueGreen": {"old": "model-a", "new": "model-a"}}, "name the same application"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_refused(wrong):
    change, told = wrong
    with pytest.raises(ConfigError) as refused:
        plan(**change)
    assert told in str(refused.value)


def test_a_plan_is_known_by_all_of_it():
    assert plan().digest == plan().digest
    assert len({plan().digest, plan(holdSeconds=1).digest, blue_green().digest}) == 3
