"""Plans that do not hold together are refused with what to change."""

import re

import promql_parser
import pytest
import yaml

from app.config.local import ROOT
from app.config.rollout import parse_plan
from app.config.yaml_file import read_yaml
from app.errors import ConfigError
from app.ops.rollout.signals import Scope, query
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


def test_the_plans_that_are_shown_are_plans():
    shown = re.findall(r"^```yaml\n(name: .*?)^```", (ROOT / "docs" / "rollout.md").read_text(), re.M | re.S)
    plans = [parse_plan(yaml.safe_load(text), "docs/rollout.md:") for text in shown]
    assert [bool(found.blue_green) for found in plans] == [False, True]
    assert parse_plan(read_yaml(ROOT / "config" / "rollout.yaml"), "config/rollout.yaml:").profile == "plain"
    for judgement in (*plans[0].gates, *plans[0].pause_while):
        promql_parser.parse(query(judgement, Scope("plain", "candidate", 300), 'namespace="ns"'))
