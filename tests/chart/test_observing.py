"""Traces, logs and Grafana's graphs in Ray's dashboard: what their values reach."""

import re
from datetime import date
from fnmatch import fnmatch

import pytest
import yaml

from app.config.chart.serve import serve_config
from app.config.chart.values import completed
from app.config.local import ROOT
from scripts.helm_render import CHART, merged, shape_values
from tests.chart.objects import application, cluster_hash, environment, groups, normal, of_kind, serve

CPU = shape_values("cpu")
TRACES = {"endpoint": "http://collector.monitoring:4318/v1/traces", "samplingRatio": 0.1, "content": False}
COLLECTOR = {"enabled": True, "endpoint": "http://collector.monitoring:4318"}


def render(chart, change):
    return chart.objects(merged(CPU, change))


def live(objects, name):
    found = application(objects, "pipeline")["deployments"]
    return next(entry["user_config"] for entry in found if entry["name"] == name)


def test_traces_and_logs_change_in_place(chart):
    before = render(chart, {})
    after = render(chart, {"settings": {"traces": TRACES, "logs": {"level": "WARNING", "encoding": "TEXT"}}})
    assert cluster_hash(before) == cluster_hash(after)
    for name in ("pipeline", "model-smollm2"):
        restarting = ("import_path", "args", "runtime_env", "route_prefix")
        shapes = [{key: application(found, name).get(key) for key in restarting} for found in (before, after)]
        assert shapes[0] == shapes[1], name
    for name in ("gateway", "retriever", "postprocessor"):
        assert live(after, name)["traces"] == TRACES
    assert "traces" not in live(before, "retriever")
    assert serve(before)["logging_config"] == {"encoding": "JSON", "log_level": "INFO", "enable_access_log": False}
    assert serve(after)["logging_config"] == {"encoding": "TEXT", "log_level": "WARNING", "enable_access_log": False}


def test_the_template_says_what_the_python_says(chart):
    values = merged(CPU, {"settings": {"traces": TRACES, "logs": {"level": "ERROR"}}})
    starter = yaml.safe_load((CHART / "files" / "starter.yaml").read_text())
    assert normal(serve(chart.objects(values))) == normal(serve_config(completed(values, starter)))


def test_without_a_collector_nothing_is_beside_ray(chart):
    objects = render(chart, {})
    assert all(len(group["template"]["spec"]["containers"]) == 1 for group in groups(objects))
    assert not [found for found in of_kind(objects, "ConfigMap") if "log-collector" in found["metadata"]["name"]]


def test_a_collector_beside_each_ray_container_reads_its_files(chart):
    objects = render(chart, {"logCollector": COLLECTOR})
    (config,) = [found for found in of_kind(objects, "ConfigMap") if "log-collector" in found["metadata"]["name"]]
    shipped = yaml.safe_load((CHART / "files" / "log-collector.yaml").read_text())
    assert yaml.safe_load(config["data"]["config.yaml"]) == shipped
    for group in groups(objects):
        spec = group["template"]["spec"]
        ray, collector = spec["containers"]  # KubeRay takes the first for Ray's
        assert ray["name"].startswith("ray-")
        mounts = {mount["name"]: mount for mount in collector["volumeMounts"]}
        assert mounts["tmp"] == {"name": "tmp", "mountPath": "/tmp", "readOnly": True}
        assert {"name": "tmp", "mountPath": "/tmp"} in ray["volumeMounts"]
        assert set(mounts) <= {volume["name"] for volume in spec["volumes"]}
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "log-collector"]
        assert volume["configMap"]["name"] == config["metadata"]["name"]
        assert mounts["log-positions"]["mountPath"] == shipped["extensions"]["file_storage"]["directory"]
        assert environment(collector)["LOGS_ENDPOINT"] == COLLECTOR["endpoint"]
        sessions = environment(collector)["RAY_LOGS"].split("/")[-2]
        assert fnmatch(f"session_{date.today()}_10-00-00_1_1", sessions)
        assert not fnmatch("session_latest", sessions), "a link to one of them: each line would be read twice"
        assert collector["securityContext"] == ray["securityContext"]
        read = {name for name in environment(collector) if f"${{env:{name}}}" in config["data"]["config.yaml"]}
        assert read == set(environment(collector)), "the configuration reads each variable"


def test_a_collectors_configuration_may_be_ones_own(chart):
    own = {"receivers": {"nop": {}}, "service": {"pipelines": {}}}
    objects = render(chart, {"logCollector": {"enabled": True, "config": own}})
    (config,) = [found for found in of_kind(objects, "ConfigMap") if "log-collector" in found["metadata"]["name"]]
    assert yaml.safe_load(config["data"]["config.yaml"]) == own


@pytest.mark.parametrize("iframe", ["", "https://grafana.example.org"])
def test_grafana_in_rays_dashboard(chart, iframe):
    given = {"host": "http://grafana:3000", "iframeHost": iframe, "prometheusHost": "http://prometheus:9090"}
    head, *workers = groups(render(chart, {"head": {"grafana": given}}))
    found = environment(head["template"]["spec"]["containers"][0])
    assert found["RAY_GRAFANA_HOST"] == "http://grafana:3000"
    assert found["RAY_GRAFANA_IFRAME_HOST"] == (iframe or "http://grafana:3000")
    assert found["RAY_PROMETHEUS_HOST"] == "http://prometheus:9090"
    assert found["RAY_PROMETHEUS_NAME"] == "Prometheus"
    for worker in workers:
        assert "RAY_GRAFANA_HOST" not in environment(worker["template"]["spec"]["containers"][0])


@pytest.mark.parametrize("page", ["traces", "logs", "ray-dashboard"])
def test_values_that_the_docs_show_are_taken(chart, page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    shown = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)]
    assert shown
    for values in shown:
        before, after = render(chart, {}), render(chart, values)
        assert before != after


def test_rays_own_logs_are_json_in_pods(chart):
    for group in groups(render(chart, {})):
        found = environment(group["template"]["spec"]["containers"][0])
        assert found["RAY_BACKEND_LOG_JSON"] == "1"
        assert found["RAY_LOGGING_CONFIG_ENCODING"] == "JSON"
        assert found["RAY_SERVE_LOG_TO_STDERR"] == "0"
