"""Every install shape renders, and what it renders is what Ray, vLLM, KubeRay and Kubernetes take."""

import functools
import json
import warnings
from pathlib import Path

import helm_python as helm
import jsonschema_rs
import pytest
import yaml

from app.config.chart.serve import serve_config
from app.config.chart.values import completed
from scripts.helm_render import CHART, SHAPES, shape_values
from tests.chart.objects import environment, groups, normal, of_kind, pod_specs, rayservice, serve

ALL = ["default", *SHAPES]
STARTER = yaml.safe_load((CHART / "files" / "starter.yaml").read_text())
KUBERAY = json.loads((Path(__file__).parent / "kuberay" / "rayservice.json").read_text())


def values_of(shape):
    return {} if shape == "default" else shape_values(shape)


@pytest.fixture(scope="module")
def rendered(chart):
    return functools.cache(lambda shape: chart.objects(values_of(shape)))


@pytest.fixture(scope="module")
def ray_schema():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own import
        from ray.serve.schema import ServeDeploySchema
    return ServeDeploySchema


def test_every_shape_of_the_issue_is_there():
    wanted = {"cpu", "single-gpu", "gpu-4x", "h100-8x", "h100-multinode", "deepseek", "multi-model", "autoscale", "ha"}
    assert wanted | {"air-gapped"} == set(SHAPES)


@pytest.mark.parametrize("shape", ALL)
def test_lint_finds_nothing(shape):
    report = helm.lint(str(CHART), values_of(shape), strict=True, kube_version="v1.34.0")
    assert [found for found in report["messages"] if found["severity"] > 1] == []
    assert not report["errors"]


@pytest.mark.parametrize("shape", ALL)
def test_kuberay_takes_the_rayservice(rendered, shape):
    faults = jsonschema_rs.validator_for(KUBERAY).iter_errors(rayservice(rendered(shape))["spec"])
    assert [(fault.instance_path, fault.message) for fault in faults] == []


@pytest.mark.parametrize("shape", ALL)
def test_ray_takes_the_serve_configuration(rendered, ray_schema, shape):
    ray_schema.model_validate(serve(rendered(shape)))


@pytest.mark.parametrize("shape", ALL)
def test_the_template_renders_what_python_builds(rendered, shape):
    assert normal(serve(rendered(shape))) == normal(serve_config(completed(values_of(shape), STARTER)))


@pytest.mark.parametrize("schema", [{"type": "object"}, '{"type": "object", "properties": {"b": {}, "a": {}}}'])
def test_a_profiles_schema_arrives_as_it_was_written(chart, schema):
    values = shape_values("cpu")
    values["settings"]["profiles"]["default"]["responseFormat"] = {
        "type": "json_schema",
        "json_schema": {"schema": schema},
    }
    sent = serve(chart.objects(values))
    for deployment in sent["applications"][-1]["deployments"]:
        if deployment["name"] == "gateway":
            profile = deployment["user_config"]["profiles"]["default"]
            assert profile["responseFormat"]["json_schema"]["schema"] == schema
    assert normal(sent) == normal(serve_config(completed(values, STARTER)))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"stages": {"summary": {"options": {"autoscaling_config": {"max_replicas": 2}}}}},
        {"stages": {"summary": {"replicas": 3, "options": {"ray_actor_options": {"num_gpus": 0.5}}}}},
        {"settings": {"summary": {"maxTokens": 60}}, "stages": {"sentiment": {"options": {"num_replicas": 3}}}},
    ],
)
def test_applications_beside_the_pipeline_are_rendered_alike(chart, ray_schema, change):
    values = shape_values("cpu")
    applications = {name: {"enabled": True, **change} for name in ("analyze", "articles")}
    group = {**values["workerGroups"][0], "logicalCpus": 64, "gpus": 8}
    values |= {"applications": applications, "workerGroups": [group]}
    sent = serve(chart.objects(values))
    ray_schema.model_validate(sent)
    assert [found["route_prefix"] for found in sent["applications"][-2:]] == ["/analyze", "/articles"]
    assert normal(sent) == normal(serve_config(completed(values, STARTER)))


@pytest.mark.parametrize("shape", ALL)
def test_pods_pass_the_restricted_level(rendered, shape):
    for spec in pod_specs(rendered(shape)):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            # RDMA needs memory that stays where it is, which that level forbids; the shape's text says so.
            rdma = any(name.startswith("rdma/") for name in container["resources"]["limits"])
            assert context["capabilities"].get("add", []) == (["IPC_LOCK"] if rdma else [])
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


@pytest.mark.parametrize("shape", ALL)
def test_ray_processes_get_their_environment(rendered, shape):
    for group in groups(rendered(shape)):
        env = environment(group["template"]["spec"]["containers"][0])
        assert env["RAY_SERVE_PROXY_USE_GRPC"] == "1"
        assert env["RAY_AUTH_MODE"] == "disabled"
        assert env["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == "app.deployments.proxy:middlewares"
        assert all(isinstance(value, str | dict) for value in env.values())


@pytest.mark.parametrize("shape", ALL)
def test_objects_are_named_after_the_release_in_its_namespace(rendered, shape):
    objects = rendered(shape)
    names = [(found["kind"], found["metadata"]["name"]) for found in objects]
    assert len(names) == len(set(names))
    for found in objects:
        metadata = found["metadata"]
        assert metadata["name"].startswith("baton")
        assert len(metadata["name"]) <= 63
        if not found["kind"].startswith("Cluster"):
            assert metadata["namespace"] == "ns"


def test_the_cpu_shape_fits_a_small_node(rendered):
    requested = 0.0
    for group in groups(rendered("cpu")):
        requests = group["template"]["spec"]["containers"][0]["resources"]["requests"]
        requested += float(requests["cpu"].removesuffix("m")) / 1000
    assert requested < 1
    assert [job["spec"]["template"]["spec"]["containers"][0]["command"][-1] for job in of_kind(rendered("cpu"), "Job")]
