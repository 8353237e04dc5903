"""docs/changes.md tells the truth: each knob of its table is turned, and what is rendered tells what follows."""

import re

import pytest

from app.config.chart.pods import WorkerGroup
from app.config.chart.values import ChartValues
from scripts.chart_rows import rows
from scripts.helm_render import ROOT, merged, shape_values
from tests.chart import effects
from tests.chart.changes import CHANGES, GIVEN, VARIANTS
from tests.chart.objects import serve

PAGE = (ROOT / "docs" / "changes.md").read_text("utf-8")
#: Where the table says each stage, model or application, one is changed.
ONE = {
    "pipeline.stages.*": "pipeline.stages.retriever",
    "models.*": "models.smollm2",
    "applications.*.stages.*": "applications.analyze.stages.summary",
    "applications.*": "applications.analyze",
}


def table(title):
    """The rows of the table under a heading or after a text, as lists of cells."""
    (found,) = re.findall(rf"^\| {title} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.M)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


TABLE = {
    key + variant: set(words.split("; "))
    for knobs, words, _ in table("knob")
    for key, variant in re.findall(r"`([^`]+)`( \([^)]+\))?", knobs)
}


def nested(key, value, groups=()):
    """The values that hold ``value`` at a key of the table; of worker groups, the first one gets it."""
    for each, one in ONE.items():
        key = key.replace(each, one)
    if key.startswith("workerGroups[]."):
        first, *others = groups
        return {"workerGroups": [merged(first, nested(key.removeprefix("workerGroups[]."), value)), *others]}
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def rendered(chart, key):
    """The release before and after the knob was turned."""
    before = merged(shape_values("cpu"), GIVEN.get(key, {}))
    change = VARIANTS[key] if key in VARIANTS else nested(key, CHANGES[key], before["workerGroups"])
    return chart.objects(before), chart.objects(merged(before, change))


def test_each_row_has_its_change_and_each_change_its_row():
    assert set(TABLE) == CHANGES.keys() | VARIANTS.keys()
    assert not CHANGES.keys() & VARIANTS.keys()
    assert GIVEN.keys() <= set(TABLE)


@pytest.mark.parametrize("key", sorted(TABLE))
def test_a_change_sets_off_what_its_row_says(chart, key):
    before, after = rendered(chart, key)
    assert effects.effects(before, after) == TABLE[key]


def test_the_words_are_those_that_the_page_explains():
    explained = [word for cells in table("words") for word in cells[0].split(", ")]
    assert explained == list(effects.WORDS)
    assert {word for words in TABLE.values() for word in words} <= set(explained)


def test_every_value_of_the_chart_stands_in_the_table():
    known = [key.split(" (")[0].replace("[]", "").split(".") for key in TABLE]
    paths = [row.path for row in rows(ChartValues())]
    paths += [("workerGroups", *row.path) for row in rows(WorkerGroup(name="x"))]
    paths.remove(("workerGroups",))
    missing = [".".join(path) for path in paths if not any(_covers(key, path) for key in known)]
    assert missing == []


def _covers(key, path):
    """A row of the value itself, of what holds it, or of what it holds."""
    return all(part in ("*", own) for part, own in zip(key, path, strict=False))


@pytest.mark.parametrize("key", sorted(key for key in TABLE if TABLE[key] & {effects.STAGE, effects.PIPELINE}))
def test_new_replicas_of_gateway_and_stages_come_first(chart, key):
    _, after = rendered(chart, key)
    (pipeline,) = [found for found in serve(after)["applications"] if found["name"] == "pipeline"]
    assert {deployment["max_surge_percent"] for deployment in pipeline["deployments"]} == {100}


def test_replicas_of_a_model_go_first_unless_told_otherwise(chart):
    _, after = rendered(chart, "models.*.env")
    (model,) = [found for found in serve(after)["applications"] if found["name"] == "model-smollm2"]
    assert "max_surge_percent" not in model["deployments"][0]


def test_several_changes_set_off_what_each_of_them_does(chart):
    values = shape_values("cpu")
    both = merged(nested("models.*.env", CHANGES["models.*.env"]), nested("networkPolicy", CHANGES["networkPolicy"]))
    both = merged(both, nested("settings.limits", CHANGES["settings.limits"]))
    found = effects.effects(chart.objects(values), chart.objects(merged(values, both)))
    assert found == {effects.MODEL, effects.BESIDE}


def test_no_change_sets_nothing_off(chart):
    objects = chart.objects(shape_values("cpu"))
    assert effects.effects(objects, objects) == {effects.NOTHING}
