"""The own engine loop in the chart: off by default, rendered as Python builds it, under the installation's limits."""

import warnings

import pytest

from app.config.chart.serve import serve_config
from app.config.chart.values import completed
from scripts.helm_render import Refused, merged, shape_values
from tests.chart.objects import normal, serve

SHAPE = {"model": "smollm2", "source": "/opt/baton/models/smollm2"}
LOOPS = {
    "plain": {"shape": SHAPE},
    "scaled": {
        "shape": {**SHAPE, "embeddings": {"enabled": True, "options": {"autoscaling_config": {"max_replicas": 3}}}},
        "options": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 40}},
    },
    "all": {
        "shape": {
            **SHAPE,
            "engine": {"dtype": "bfloat16", "max_num_seqs": 8},
            "embeddings": {"enabled": True, "options": {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}},
            "cache": {"enabled": True, "maxAnswers": 10},
        },
        "settings": {"systemPrompt": "Be brief.", "sampling": {"temperature": 0}},
        "env": {"VLLM_LOGGING_LEVEL": "WARNING"},
        "options": {"num_replicas": 1, "ray_actor_options": {"num_gpus": 1}},
        "routePrefix": "/loop",
    },
}


def values_with(loop, **more):
    return merged(shape_values("cpu"), {"engineLoop": {"enabled": True, **loop}, **more})


def with_a_gpu():
    return {"workerGroups": [{**group, "gpus": 1} for group in shape_values("cpu")["workerGroups"]]}


def test_it_is_off_by_default(chart):
    names = [found["name"] for found in serve(chart.objects(shape_values("cpu")))["applications"]]
    assert "engine-loop" not in names


@pytest.mark.parametrize("name", LOOPS)
def test_the_template_renders_what_python_builds(chart, name):
    values = values_with(LOOPS[name], runtimeEnv={"env_vars": {"A": "b"}}, **with_a_gpu())
    sent = serve(chart.objects(values))
    assert normal(sent) == normal(serve_config(completed(values, {})))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own import
        from ray.serve.schema import ServeDeploySchema
    ServeDeploySchema.model_validate(sent)


def test_limits_guardrail_and_keys_are_those_of_the_installation(chart):
    more = {"settings": {"limits": {"maxTokens": 2000}, "guardrail": {"maxTextChars": 5000}}}
    loop = serve(chart.objects(values_with(LOOPS["plain"], **more)))["applications"][-1]
    live = loop["deployments"][0]["user_config"]
    assert live["limits"]["maxTokens"] == 2000
    assert live["guardrail"]["maxTextChars"] == 5000
    assert live["auth"]["enabled"] is False


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ({}, "engineLoop.shape"),
        ({"shape": {"model": "smollm2"}}, "source"),
        ({"shape": {**SHAPE, "modle": 1}}, "modle"),
        ({"shape": SHAPE, "settings": {"policy": "strict"}}, "policy names strict"),
        ({"shape": SHAPE, "routePrefix": "loop"}, "routePrefix"),
        (
            {"shape": SHAPE, "options": {"autoscaling_config": {"target_ongoing_requests": 4000}}},
            "engineLoop.options: a replica takes 384 requests",
        ),
        ({"shape": SHAPE, "options": {"ray_actor_options": {"num_gpus": 1}}}, "engineLoop 1.*the workerGroups have 0"),
        ({"shape": SHAPE, "options": {"ray_actor_options": {"num_cpus": 900}}}, "CPUs in all"),
        ({"shape": SHAPE, "options": {"ray_actor_options": {"resources": {"fpga": 1}}}}, "no pod offers fpga"),
        (
            {"shape": {**SHAPE, "embeddings": {"enabled": True, "options": {"ray_actor_options": {"num_cpus": 900}}}}},
            "CPUs in all",
        ),
    ],
)
def test_wrong_values_are_refused_with_the_key(chart, loop, said):
    with pytest.raises(Refused, match=said):
        chart.objects(values_with(loop))
