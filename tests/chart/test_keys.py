"""API keys: the Secret with their file is mounted where gateways run, and what asks the gateway gets a key."""

import pytest

from scripts.helm_render import merged, shape_values
from tests.chart.objects import application, environment, groups, of_kind, rayservice

CPU = shape_values("cpu")
ON = {
    "settings": {"auth": {"enabled": True}},
    "auth": {
        "existingSecret": "baton-keys",
        "key": "file.yaml",
        "clientSecret": {"name": "baton-client", "key": "secret"},
    },
}
VOLUME = {
    "name": "keys",
    "secret": {"secretName": "baton-keys", "defaultMode": 0o440, "items": [{"key": "file.yaml", "path": "keys.yaml"}]},
}
MOUNT = {"name": "keys", "mountPath": "/etc/baton/keys", "readOnly": True}
FROM_SECRET = {"secretKeyRef": {"name": "baton-client", "key": "secret"}}


def render(chart, change):
    return chart.objects(merged(CPU, change))


def containers(objects, component):
    specs = [found["spec"]["template"]["spec"] for found in of_kind(objects, "Job")]
    specs += [found["spec"] for found in of_kind(objects, "Pod")]
    return [spec["containers"][0] for spec in specs if spec["containers"][0]["name"] == component]


def test_the_file_lies_in_every_ray_pod_and_the_gateway_looks_there(chart):
    objects = render(chart, ON)
    assert len(groups(objects)) > 1
    for group in groups(objects):
        spec = group["template"]["spec"]
        assert VOLUME in spec["volumes"]
        assert MOUNT in spec["containers"][0]["volumeMounts"]
        assert "BATON_API_KEY" not in environment(spec["containers"][0])
    (gateway,) = [found for found in application(objects, "pipeline")["deployments"] if found["name"] == "gateway"]
    assert gateway["user_config"]["auth"] == {"enabled": True, "keysFile": "/etc/baton/keys/keys.yaml"}


def test_keys_are_turned_on_and_off_without_a_change_of_pods(chart):
    off = merged(ON, {"settings": {"auth": {"enabled": False}}})
    pods = [rayservice(render(chart, change))["spec"]["rayClusterConfig"] for change in (ON, off)]
    assert pods[0] == pods[1]


@pytest.mark.parametrize("component", ["index", "ask"])
def test_what_asks_the_gateway_gets_a_key_from_a_secret(chart, component):
    found = containers(render(chart, ON), component)
    assert found
    for container in found:
        assert environment(container)["BATON_API_KEY"] == FROM_SECRET
        assert "secret" not in " ".join(container["command"])


def test_nothing_else_gets_it(chart):
    objects = render(chart, {**ON, "doctor": {"enabled": True}})
    (doctor,) = containers(objects, "doctor")
    assert "BATON_API_KEY" not in environment(doctor)


def test_without_values_nothing_is_mounted(chart):
    objects = render(chart, {})
    for group in groups(objects):
        assert not [volume for volume in group["template"]["spec"]["volumes"] if volume["name"] == "keys"]
    for component in ("index", "ask"):
        assert all("BATON_API_KEY" not in environment(found) for found in containers(objects, component))
