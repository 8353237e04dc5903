"""Pods beside the Ray cluster: where they run, and that none of them gets a Secret that it does not read."""

import pytest

from scripts.helm_render import Refused, merged, shape_values
from tests.chart.objects import environment, groups, of_kind
from tests.chart.wrong_values import PLAN

PLACE = {
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "low",
}
SECRETS = {
    name: {"name": "secrets", "key": name.lower()}
    for name in ("HF_TOKEN", "PGPASSWORD", "PROMETHEUS_TOKEN", "BATON_API_KEY")
}
ALL = {
    "secretEnv": SECRETS,
    "modelCache": {"kind": "claim", "offline": False, "preload": {"enabled": True, "models": ["gpt2"]}},
    "doctor": {"enabled": True},
    "batch": {"nightly": {"input": "/batch/a.jsonl", "output": "/batch/b.jsonl", "volume": {"emptyDir": {}}}},
    "settings": {"routing": {"default": {"variants": {"old": {"weight": 1}, "new": {"weight": 0}}}}},
    "rollout": {"enabled": True, "prometheusUrl": "http://prometheus:9090", "plan": PLAN},
    "gcsFaultTolerance": {
        "enabled": True,
        "passwordSecret": {"name": "redis", "key": "password"},
        "redis": {"enabled": True},
    },
}


def render(chart, change=None):
    return chart.objects(merged(merged(shape_values("cpu"), ALL), change or {}))


def pods(objects):
    """The pods of Jobs and of `helm test`, by what they run."""
    specs = [found["spec"]["template"]["spec"] for found in of_kind(objects, "Job")]
    specs += [found["spec"] for found in of_kind(objects, "Pod")]
    return {spec["containers"][0]["name"]: spec for spec in specs}


def redis(objects):
    (found,) = of_kind(objects, "StatefulSet")
    return found["spec"]["template"]["spec"]


def place(spec):
    return {key: spec[key] for key in PLACE if key in spec}


def test_jobs_and_the_test_run_where_they_are_told(chart):
    objects = render(chart, {"jobs": PLACE})
    found = pods(objects)
    assert set(found) == {"index", "preload", "doctor", "rollout", "batch", "ask"}
    assert all(place(spec) == PLACE for spec in found.values())
    assert place(redis(objects)) == {}
    assert all(place(group["template"]["spec"]) == {} for group in groups(objects))


def test_redis_runs_where_it_is_told(chart):
    objects = render(chart, {"gcsFaultTolerance": {"redis": PLACE}})
    assert place(redis(objects)) == PLACE
    assert all(place(spec) == {} for spec in pods(objects).values())


def test_a_place_that_kubernetes_refuses_is_refused(chart):
    for where in ({"jobs": {"tolerations": [{"kind": "x"}]}}, {"gcsFaultTolerance": {"redis": {"affinity": {"a": 1}}}}):
        with pytest.raises(Refused, match=r"tolerations|affinity"):
            render(chart, where)


def test_no_job_is_changed_under_its_name_when_it_moves(chart):
    def lasting(objects):
        return {job["metadata"]["name"] for job in of_kind(objects, "Job")} - {"baton-doctor"}

    assert not lasting(render(chart)) & lasting(render(chart, {"jobs": PLACE}))


@pytest.mark.parametrize(
    ("command", "secrets"),
    [("index", set()), ("ask", set()), ("doctor", set()), ("rollout", {"PROMETHEUS_TOKEN"}), ("preload", set(SECRETS))],
)
def test_a_job_gets_the_secrets_that_it_reads(chart, command, secrets):
    (container,) = pods(render(chart))[command]["containers"]
    found = environment(container)
    assert {name for name in found if isinstance(found[name], dict)} == secrets


def test_the_key_comes_from_its_own_secret_alone(chart):
    key = {"name": "client", "key": "secret"}
    objects = render(chart, {"auth": {"clientSecret": key}})
    for command in ("index", "ask"):
        (container,) = pods(objects)[command]["containers"]
        given = [entry for entry in container["env"] if "valueFrom" in entry]
        assert given == [{"name": "BATON_API_KEY", "valueFrom": {"secretKeyRef": key}}]
