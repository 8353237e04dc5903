"""gRPC in the chart: off by default; on, in Serve's configuration, the pods, a Service and the policy."""

import re

import pytest
import yaml

from app.config.chart.serve import serve_config
from app.config.chart.values import completed
from scripts.helm_render import CHART, merged, shape_values
from tests.chart.objects import normal, serve
from tests.chart.test_observing import ROOT, groups, of_kind

CPU = shape_values("cpu")
ON = {"grpc": {"enabled": True, "port": 9100}, "networkPolicy": {"enabled": True}}


def test_it_is_off_by_default(chart):
    objects = chart.objects(CPU)
    assert "grpc_options" not in serve(objects)
    assert not [found for found in of_kind(objects, "Service") if found["metadata"]["name"].endswith("-grpc")]


def test_a_value_turns_it_on(chart):
    objects = chart.objects(merged(CPU, ON))
    options = serve(objects)["grpc_options"]
    assert options == {"port": 9100, "grpc_servicer_functions": ["app.deployments.rpc_proxy:add_to_server"]}
    (service,) = [found for found in of_kind(objects, "Service") if found["metadata"]["name"].endswith("-grpc")]
    assert service["spec"]["selector"]["ray.io/serve"] == "true"
    (port,) = service["spec"]["ports"]
    for group in groups(objects):
        ports = {named["name"]: named["containerPort"] for named in group["template"]["spec"]["containers"][0]["ports"]}
        assert ports[port["targetPort"]] == port["port"] == 9100
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert {"port": 9100} in [port for rule in policy["spec"]["ingress"] for port in rule.get("ports", ())]


def test_the_template_says_what_the_python_says(chart):
    values = merged(CPU, ON)
    starter = yaml.safe_load((CHART / "files" / "starter.yaml").read_text())
    assert normal(serve(chart.objects(values))) == normal(serve_config(completed(values, starter)))


@pytest.mark.parametrize("part", [0, 1])
def test_values_that_the_page_on_images_shows_are_taken(chart, part):
    shown = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "images.md").read_text(), re.M | re.S)
    values = yaml.safe_load(shown[part])
    whole = {} if part == 0 else CPU
    assert serve(chart.objects(merged(whole, values))) != serve(chart.objects(whole))
