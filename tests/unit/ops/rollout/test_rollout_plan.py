"""Plans that do not hold together are refused with what to change."""

import re
import shlex

import promql_parser
import pytest
import yaml

from app.config.local import ROOT
from app.config.rollout import parse_plan
from app.errors import ConfigError
from app.ops.rollout.__main__ import read_plan
from app.ops.rollout.options import parser
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
    assert read_plan(ROOT / "config" / "rollout.yaml").profile == "plain"
    for judgement in (*plans[0].gates, *plans[0].pause_while):
        promql_parser.parse(query(judgement, Scope("plain", "candidate", 300), 'namespace="ns"'))


def test_placeholders_of_a_query_pass_the_file(tmp_path):
    text = yaml.safe_dump(plan().model_dump(mode="json", by_alias=True, exclude_none=True))
    place = tmp_path / "plan.yaml"
    place.write_text(f"{text}pauseWhile: [{{name: x, query: 'x{{a=\"{{variant}}\"}}[{{window}}]', bound: 1}}]\n")
    with pytest.raises(ConfigError, match="'pauseWhile' stands twice"):
        read_plan(place)
    place.write_text(place.read_text().replace("pauseWhile: []\n", ""))
    assert read_plan(place).pause_while[0].query == 'x{a="{variant}"}[{window}]'


def test_the_commands_that_are_shown_are_commands():
    shown = re.findall(r"^\S*python -m app\.ops\.rollout (.*)$", (ROOT / "docs" / "rollout.md").read_text(), re.M)
    found = [parser().parse_args(shlex.split(line, comments=True)) for line in shown]
    assert {options.command for options in found} == {"run", "blue-green", "status", "abort"}
    assert len(found) == 7
