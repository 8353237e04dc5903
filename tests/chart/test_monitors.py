"""What Prometheus and Grafana find a release by."""

import json
import re

import pytest
import yaml

from scripts.helm_render import CHART, merged, shape_values
from tests.chart.objects import groups, of_kind

CPU = shape_values("cpu")
KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def render(chart, change=None, **release):
    return chart.objects(merged(CPU, {"observability": {"when": "always", **(change or {})}}), **release)


@pytest.mark.parametrize("when", ["auto", "never"])
def test_nothing_is_made_where_the_crds_are_missing(chart, when):
    objects = render(chart, {"when": when})
    assert not [found for found in objects if found["kind"] in KINDS or "-board-" in found["metadata"]["name"]]


def test_a_service_monitor_selects_the_metrics_service_alone(chart):
    objects = render(chart, {"labels": {"release": "prometheus"}, "interval": "30s"})
    (monitor,) = of_kind(objects, "ServiceMonitor")
    assert of_kind(objects, "PodMonitor") == []
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "30s")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [found for found in of_kind(objects, "Service") if wanted <= found["metadata"]["labels"].items()]
    ports = {port.get("name") for service in services for port in service["spec"]["ports"]}
    named = [s["metadata"]["name"] for s in services if any(p.get("name") == "metrics" for p in s["spec"]["ports"])]
    assert "metrics" in ports
    assert named == ["baton-metrics"]


def test_a_pod_monitor_selects_the_ray_pods_under_the_same_job(chart):
    objects = render(chart, {"monitor": "PodMonitor"}, name="shop")
    (monitor,) = of_kind(objects, "PodMonitor")
    assert of_kind(objects, "ServiceMonitor") == []
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "shop-baton-metrics"}]
    wanted = dict(monitor["spec"]["selector"]["matchLabels"])
    assert wanted.pop("ray.io/is-ray-node") == "yes"  # KubeRay gives it to every Ray pod
    for group in groups(objects):
        template = group["template"]
        assert wanted.items() <= template["metadata"]["labels"].items()
        assert "metrics" in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_rules_are_the_tested_ones_with_the_release_put_in(chart):
    tested = (CHART / "files" / "rules" / "baton.yaml").read_text()
    (rule,) = of_kind(render(chart, namespace="baton"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(tested)
    (rule,) = of_kind(
        render(
            chart,
            {"runbookUrl": "https://example.org/r", "grafanaUrl": "https://example.org/g/"},
            name="shop",
            namespace="x",
        ),
        "PrometheusRule",
    )
    text = yaml.safe_dump(rule["spec"], width=10_000)
    for left in ('namespace="baton"', 'job="baton-metrics"', "var-job=baton-metrics", '=~"baton-', "docs/runbook.md"):
        assert left in tested
        assert left not in text
    assert 'namespace="x",job="shop-baton-metrics"' in text
    alerts = [found for group in rule["spec"]["groups"] for found in group["rules"] if "alert" in found]
    assert {found["labels"]["job"] for found in alerts} == {"shop-baton-metrics"}
    assert "https://example.org/r#batonerrorrate" in text
    assert "https://example.org/g/d/baton-overview?" in text
    assert "&var-job=shop-baton-metrics" in text


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({}, "batch"),
        ({"batches": {"priority": "night"}, "priorities": {"night": {"enginePriority": 9}}}, "batch|night"),
        ({"defaultPriority": "batch"}, "-"),
    ],
)
def test_objectives_leave_out_the_classes_of_batches_and_never_the_default_one(chart, settings, left_out):
    values = merged(CPU, {"settings": settings, "observability": {"when": "always"}})
    (rule,) = of_kind(chart.objects(values), "PrometheusRule")
    (found,) = set(re.findall(r'priority!~"[^"]*"', yaml.safe_dump(rule["spec"], width=10_000)))
    assert found == f'priority!~"{left_out}"'


def test_boards_are_for_the_sidecar(chart):
    boards = [found for found in of_kind(render(chart), "ConfigMap") if "-board-" in found["metadata"]["name"]]
    shipped = {path.name: json.loads(path.read_text()) for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert shipped
    assert {name: json.loads(text) for board in boards for name, text in board["data"].items()} == shipped
    assert all(board["metadata"]["labels"]["grafana_dashboard"] == "1" for board in boards)


def test_boards_and_rules_replace_no_cluster(chart):
    (with_, without) = (chart.objects(merged(CPU, {"observability": {"when": when}})) for when in ("always", "never"))
    clusters = [of_kind(found, "RayService") for found in (with_, without)]
    assert clusters[0] == clusters[1]


def test_labels_and_annotations_of_every_object_are_theirs_too(chart):
    common = {"commonLabels": {"release": "all", "team": "a"}, "commonAnnotations": {"note": "x"}}
    values = merged(CPU, {**common, "fullnameOverride": "no", "observability": {"when": "always"}})
    values["observability"]["labels"] = {"release": "prometheus"}
    objects = chart.objects(values, namespace="1e3")
    for kind, release in (("ServiceMonitor", "prometheus"), ("PrometheusRule", "prometheus"), ("ConfigMap", "all")):
        for found in of_kind(objects, kind):
            metadata = found["metadata"]
            assert metadata["name"].startswith("no")
            assert metadata["namespace"] == "1e3"
            assert (metadata["labels"]["release"], metadata["labels"]["team"]) == (release, "a")
            assert metadata["annotations"] == {"note": "x"}
