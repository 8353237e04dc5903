"""The rollout's Job: off unless asked for, one per plan, and with no right beyond its release."""

import yaml

from app.config.rollout import parse_plan
from scripts.helm_render import merged, shape_values
from tests.chart.objects import of_kind
from tests.chart.wrong_values import PLAN

URL = "http://prometheus.monitoring:9090"
COMMAND = "app.ops.rollout run --plan /etc/baton/plan.yaml --namespace ns --name baton --prometheus-url"


def rendered(chart, plan=None, **more):
    variants = {"old": {"weight": 1}, "new": {"weight": 0}}
    values = {"settings": {"routing": {"default": {"variants": variants}}}}
    values |= {"rollout": {"enabled": True, "prometheusUrl": URL, "plan": plan or PLAN}}
    return chart.objects(merged(shape_values("cpu"), merged(values, more)))


def jobs(objects):
    return [job for job in of_kind(objects, "Job") if "-rollout-" in job["metadata"]["name"]]


def test_there_is_none_unless_asked_for(chart):
    objects = chart.objects(shape_values("cpu"))
    assert not [found for found in objects if "rollout" in found["metadata"]["name"]]


def test_the_plan_reaches_the_command(chart):
    objects = rendered(chart, {**PLAN, "gates": [{"name": "own", "query": 'x{a="{variant}"}', "bound": 0.5}]})
    (job,) = jobs(objects)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert " ".join(container["command"][2:]) == f"{COMMAND} {URL}"
    (found,) = [found for found in of_kind(objects, "ConfigMap") if found["metadata"]["name"] == "baton-rollout"]
    plan = parse_plan(yaml.safe_load(found["data"]["plan.yaml"]), "plan")
    assert plan.gates[0].query == 'x{a="{variant}"}'
    assert plan.steps[0].share == 10
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [1, 2]}


def test_another_plan_is_another_job_and_nothing_else_is(chart):
    def name(plan=None, **more):
        (job,) = jobs(rendered(chart, plan, **more))
        return job["metadata"]["name"]

    assert name() == name(settings={"limits": {"maxN": 2}})
    assert name() != name({**PLAN, "name": "v3"})


def test_it_may_touch_its_own_rayservice_only(chart):
    objects = rendered(chart)
    (role,) = [role for role in of_kind(objects, "Role") if role["metadata"]["name"] == "baton-rollout"]
    rights = {
        (rule["resources"][0], verb): rule.get("resourceNames") for rule in role["rules"] for verb in rule["verbs"]
    }
    assert rights == {
        ("rayservices", "get"): ["baton"],
        ("rayservices", "patch"): ["baton"],
        ("events", "create"): None,
        ("leases", "create"): None,
        ("leases", "get"): ["baton-rollout"],
        ("leases", "update"): ["baton-rollout"],
    }
    (job,) = jobs(objects)
    spec = job["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("baton-rollout", True)
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_token_for_prometheus_comes_from_a_secret(chart):
    objects = rendered(chart, secretEnv={"PROMETHEUS_TOKEN": {"name": "prometheus", "key": "token"}})
    (container,) = jobs(objects)[0]["spec"]["template"]["spec"]["containers"]
    (token,) = [entry for entry in container["env"] if entry["name"] == "PROMETHEUS_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "prometheus", "key": "token"}
