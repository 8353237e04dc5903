"""The local configuration becomes Serve's: what shapes a deployment in args, what may change live in user_config."""

import json
from pathlib import Path

import pytest
import yaml

from app.config.local import LocalConfig, load, serve_config
from app.config.pipeline import PipelineSettings, PipelineShape
from app.config.response_format import openai_json
from app.config.serve import capacity
from app.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / "config" / "local.yaml"


def application(config, name):
    return next(found for found in serve_config(config)["applications"] if found["name"] == name)


def test_the_shipped_configuration_is_valid_and_fills_in_the_data_folder(tmp_path):
    config = load(LOCAL, tmp_path)
    assert config.pipeline.store.uri == f"{tmp_path}/index"
    assert application(config, "model-smollm2")["route_prefix"] is None
    assert application(config, "model-smollm2")["args"]["model_loading_config"]["model_source"].startswith(
        str(tmp_path)
    )
    for path in config.collections.values():
        assert (ROOT / path).exists()


def test_grpc_is_there_where_it_has_a_port(tmp_path):
    config = load(LOCAL, tmp_path)
    assert "grpc_options" not in serve_config(config)
    machine = config.machine.model_copy(update={"grpc_port": 9000})
    assert serve_config(config.model_copy(update={"machine": machine}))["grpc_options"]["port"] == 9000


def test_settings_travel_in_user_config_only(tmp_path):
    pipeline = application(load(LOCAL, tmp_path), "pipeline")
    PipelineShape.parse(pipeline["args"], "args")
    by_name = {deployment["name"]: deployment["user_config"] for deployment in pipeline["deployments"]}
    assert set(by_name) == {"gateway", "retriever", "postprocessor"}
    settings = PipelineSettings.parse(by_name["gateway"], "user_config")
    assert settings.default_profile == "default"
    assert not pipeline["args"].keys() & {"profiles", "limits", "guardrail"}


def test_routing_and_adapters_travel_with_the_settings(tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    schema = {"type": "json_schema", "json_schema": {"name": "any", "schema": {"type": "object"}}}
    raw["settings"]["adapters"] = {"smollm2": ["sql"]}
    raw["settings"]["routing"] = {
        "plain": {
            "sticky": "session",
            "variants": {
                "stable": {"weight": 9.5},
                "tuned": {"weight": 0.5, "model": "smollm2:sql", "retrieval": {"topK": 1}, "responseFormat": schema},
            },
            "rules": [{"when": {"busyAbove": 0.5, "keys": ["team-a"]}, "variant": "tuned"}],
            "shadow": [{"variant": "tuned"}],
        }
    }
    config = LocalConfig.parse(raw, "local")
    sent = json.loads(json.dumps(application(config, "pipeline")["deployments"][0]["user_config"]))
    gateway = PipelineSettings.parse(sent, "user_config").gateway(config.pipeline)
    assert gateway == config.settings.in_order().gateway(config.pipeline).model_copy(
        update={"model_capacity": gateway.model_capacity}
    )
    assert gateway.variant("plain", "tuned").model == "smollm2:sql"
    assert gateway.models["smollm2:sql"] == gateway.models["smollm2"]


ORDERS = (["name", "age"], ["age", "name"])


def with_schema(where, order, text):
    """Return the gateway's user_config where a profile or variant has a schema with its properties in an order."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in order}}
    format_ = {"type": "json_schema", "json_schema": {"schema": json.dumps(schema) if text else schema}}
    raw = yaml.safe_load(LOCAL.read_text())
    if where == "profile":
        raw["settings"]["profiles"]["plain"]["responseFormat"] = format_
    else:
        raw["settings"]["routing"] = {"plain": {"variants": {"a": {"weight": 1, "responseFormat": format_}}}}
    return application(LocalConfig.parse(raw, "local"), "pipeline")["deployments"][0]["user_config"]


@pytest.mark.parametrize("where", ["profile", "variant"])
@pytest.mark.parametrize("text", [False, True])
def test_the_order_of_a_schemas_properties_is_a_change_to_serve_and_arrives(where, text):
    sent = [with_schema(where, order, text) for order in ORDERS]
    # As Serve does to find out whether anything changed, and on the way to the replica.
    first, second = (json.dumps(one, sort_keys=True) for one in sent)
    assert first != second
    for told, order in zip((first, second), ORDERS, strict=True):
        settings = PipelineSettings.parse(json.loads(told), "user_config")
        found = settings.profiles["plain"] if where == "profile" else settings.routing["plain"].variants["a"]
        schema = openai_json(found.response_format)["json_schema"]["schema"]
        assert list(schema["properties"]) == order


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"adapters": {"gpt": ["sql"]}}, "settings.adapters names 'gpt'"),
        ({"adapters": {"smollm2": ["a:b"]}}, "adapters.smollm2"),
        ({"routing": {"plain": {"variants": {"a": {"weight": 1, "policy": "x"}}}}}, "routing.plain.variants.a.policy"),
        ({"routing": {"plain": {"variants": {"a": {"weight": 1, "model": "smollm2:sql"}}}}}, "names 'smollm2:sql'"),
        ({"routing": {"plain": {"variants": {"a": {"weight": 1, "model": "a:b:c"}}}}}, "variants.a.model"),
    ],
)
def test_adapters_and_routing_that_name_nobody_are_refused(change, told):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["settings"].update(change)
    with pytest.raises(ConfigError) as refused:
        LocalConfig.parse(raw, "local")
    assert told in refused.value.message


def test_a_stage_moved_to_a_deployment_gets_its_settings(tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["pipeline"]["stages"]["guardrail"] = {"placement": "deployment"}
    raw["settings"]["guardrail"] = {"policies": {"default": {"terms": [{"term": "bomb"}]}}}
    deployments = application(LocalConfig.parse(raw, "local"), "pipeline")["deployments"]
    guardrail = next(found for found in deployments if found["name"] == "guardrail")
    assert guardrail["user_config"]["policies"]["default"]["terms"][0]["terms"] == ["bomb"]


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        ({}, None),
        ({"max_queued_requests": -1}, None),
        ({"max_ongoing_requests": 4, "max_queued_requests": 4}, 8),
        ({"max_ongoing_requests": 4, "max_queued_requests": 4, "num_replicas": 3}, 16),
        ({"max_ongoing_requests": 4, "max_queued_requests": 0, "autoscaling_config": {"max_replicas": 10}}, 40),
    ],
)
def test_a_model_takes_what_its_replicas_work_on_and_what_may_wait(options, jobs):
    assert capacity(options) == jobs


def test_the_capacity_of_a_model_follows_from_its_options_unless_it_is_set(tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())

    def found():
        deployments = application(LocalConfig.parse(raw, "local"), "pipeline")["deployments"]
        return next(part["user_config"] for part in deployments if part["name"] == "gateway")["modelCapacity"]

    assert found() == {"smollm2": 96}
    raw["settings"]["modelCapacity"] = {"smollm2": 7}
    assert found() == {"smollm2": 7}
    raw["settings"]["modelCapacity"] = {"other": 7}
    with pytest.raises(ConfigError, match="modelCapacity names 'other'"):
        LocalConfig.parse(raw, "local")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda raw: raw["machine"].update(prot=1), "machine.prot"),
        (lambda raw: raw["settings"]["profiles"]["default"].update(model="huge"), "huge"),
        (
            lambda raw: raw["pipeline"]["models"]["smollm2"].update(application="nowhere"),
            r"local\.yaml: pipeline\.models\.smollm2\.application names 'nowhere', not among models$",
        ),
        (
            lambda raw: raw["models"][0].update(application="pipeline"),
            r"models\.0\.application is 'pipeline', the name of the pipeline: choose another one$",
        ),
        (
            lambda raw: raw["models"].append(raw["models"][0]),
            r"models\.1\.application is 'model-smollm2', the name of models\.0: choose another one$",
        ),
        (
            lambda raw: raw["settings"].update(limits={"maxTopK": 65}),
            r"limits\.maxTopK is 65, over retriever\.maxTopK of 64",
        ),
        (
            lambda raw: raw["settings"].update(profiles={}),
            r"local\.yaml: settings\.profiles: must have at least 1 item, not 0$",
        ),
        (
            lambda raw: raw["settings"]["profiles"]["plain"].update(policy="strict"),
            r"local\.yaml: settings: profiles\.plain\.policy names 'strict', which guardrail\.policies lacks$",
        ),
        (lambda raw: raw["pipeline"]["stages"]["assembler"].update(options={"num_replicas": 2}), "placement"),
        (
            lambda raw: raw["pipeline"]["stages"]["retriever"].update(options={"max_queued_requests": 1}),
            "max_queued_requests",
        ),
        (lambda raw: raw["settings"].update(defaultProfile="none"), "none"),
        (lambda raw: raw["machine"].update(port=True), r"machine\.port: must be a whole number, not true"),
        (lambda raw: raw["settings"].update(modelCapacity={"smollm2": True}), "must be a whole number, not true"),
        (
            lambda raw: raw["settings"]["profiles"]["default"]["sampling"].update(temperature=False),
            r"sampling\.temperature: must be a number, not false",
        ),
        (
            lambda raw: raw["settings"]["profiles"]["default"]["retrieval"].update(enabled="yes"),
            r"retrieval\.enabled: must be true or false, without quotes \(got 'yes'\)",
        ),
        (lambda raw: raw["pipeline"]["embedder"].update(sharedWeights=1), "must be true or false"),
        (
            lambda raw: raw["pipeline"]["store"].update(uri="{dat}/index"),
            r"pipeline\.store\.uri names the placeholder '\{dat\}'; there are \{data\} and \{root\} only",
        ),
        (lambda raw: raw["models"][0]["env"].update(HOME="/x y/{home}/z"), r"models\[0\]\.env\.HOME names"),
    ],
)
def test_a_mistake_is_refused_with_the_key_that_has_to_change(change, sentence, tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    change(raw)
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=sentence):
        load(path, tmp_path)


@pytest.mark.parametrize("content", [b"a: &a [*a]", b"\xff\xfe\x00", b"a: [1"])
def test_a_file_that_cannot_be_taken_in_is_one_sentence(content, tmp_path):
    path = tmp_path / "local.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"local\.yaml cannot be read"):
        load(path, tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"is empty: copy config/local\.yaml"),
        ("# nothing\n", "is empty"),
        ("- a\n", "keys and their values at the top, not a list"),
        ("hello", "not the one value 'hello'"),
        ("machine: {port: 1}\nmodels: []\nmachine: {}\n", r"the key 'machine' stands twice.*line 3, column 1"),
        ("settings:\n  a: 1\n  a: 2\n", r"the key 'a' stands twice.*line 3, column 3"),
        ("a: [1\nb: 2", r"cannot be read: .*\(line 2, column \d+\)\.$"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "local.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=sentence) as caught:
        load(path, tmp_path)
    assert "\n" not in caught.value.message


def test_braces_in_texts_and_merged_keys_are_no_mistakes(tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    profile = raw["settings"]["profiles"]["plain"]
    profile["systemPrompt"] = "Answer {name} politely, in {lang}."
    policy = raw["settings"]["guardrail"]["policies"]["default"]
    policy["patterns"] = [{"name": "han", "pattern": r"\p{Han}{3}"}]
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(raw) + "x:\n  <<: {port: 1}\n  port: 2\n")
    with pytest.raises(ConfigError, match=r"local\.yaml: x: there is no such key"):
        load(path, tmp_path)
    path.write_text(yaml.safe_dump(raw))
    config = load(path, tmp_path)
    assert config.settings.profiles["plain"].system_prompt == "Answer {name} politely, in {lang}."


def test_the_environment_of_an_engine_stays_text(tmp_path):
    env = load(LOCAL, tmp_path).models[0].env
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load(tmp_path / "none.yaml", tmp_path)


def test_options_of_deployments_are_overrides_that_change_in_place(tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["pipeline"]["stages"]["retriever"]["options"] = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}
    pipeline = application(LocalConfig.parse(raw, "local"), "pipeline")
    assert [stage["options"] for stage in pipeline["args"]["stages"].values()] == [{}] * 5
    retriever = next(found for found in pipeline["deployments"] if found["name"] == "retriever")
    assert retriever["num_replicas"] == 2
    assert retriever["ray_actor_options"] == {"num_cpus": 0.5}


@pytest.mark.parametrize(
    ("options", "surge"),
    [
        ({}, 100),
        ({"max_surge_percent": 50}, 50),
        ({"ray_actor_options": {"num_gpus": 0.25}}, None),
        ({"ray_actor_options": {"num_gpus": 0}}, 100),
    ],
)
def test_new_replicas_of_a_stage_serve_before_old_ones_stop_unless_it_holds_gpus(options, surge):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["pipeline"]["stages"]["retriever"]["options"] = options
    config = LocalConfig.parse(raw, "local")
    surges = {found["name"]: found.get("max_surge_percent") for found in application(config, "pipeline")["deployments"]}
    assert surges == {"gateway": 100, "retriever": surge, "postprocessor": 100}
    (generator,) = application(config, "model-smollm2")["deployments"]
    assert "max_surge_percent" not in generator


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrent_queries": 4}, "max_concurrent_queries is deprecated in Ray: use max_ongoing_requests"),
        ({"autoscaling_config": {"smoothing_factor": 2}}, "use upscaling_factor and downscaling_factor"),
        ({"autoscaling_config": {"metrics_interval_s": 1}}, "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S"),
        ({"num_replica": 2}, "num_replica"),
        ({"num_replicas": 1, "autoscaling_config": {}}, "exclude each other"),
        ({"ray_actor_options": {"num_cpu": 1}}, "options: ray_actor_options.num_cpu: there is no such key"),
        ({"ray_actor_option": {"num_cpus": 1}}, "options: ray_actor_option: there is no such key"),
    ],
)
def test_options_that_ray_would_drop_are_refused(options, words):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["models"][0]["options"] = options
    with pytest.raises(ConfigError) as refused:
        LocalConfig.parse(raw, "local")
    assert words in str(refused.value)


def test_autoscaling_has_defaults():
    raw = yaml.safe_load(LOCAL.read_text())
    raw["models"][0]["options"] = {"autoscaling_config": {"max_replicas": 3}}
    (deployment,) = application(LocalConfig.parse(raw, "local"), "model-smollm2")["deployments"]
    found = deployment["autoscaling_config"]
    assert (found["min_replicas"], found["initial_replicas"], found["max_replicas"]) == (1, 2, 3)
    assert (found["upscale_delay_s"], found["downscale_delay_s"]) == (30, 300)
    assert (found["upscaling_factor"], found["downscaling_factor"]) == (1.5, 0.7)


@pytest.mark.parametrize(("least", "most", "first"), [(1, 10, 2), (0, 1, 1), (4, 8, 4), (0, 4, 2)])
def test_the_first_number_of_replicas_lies_between_the_bounds(least, most, first):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["models"][0]["options"] = {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}
    (deployment,) = application(LocalConfig.parse(raw, "local"), "model-smollm2")["deployments"]
    assert deployment["autoscaling_config"]["initial_replicas"] == first
