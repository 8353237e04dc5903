"""The local configuration becomes Serve's: what shapes a deployment in args, what may change live in user_config."""

from pathlib import Path

import pytest
import yaml

from app.config.local import LocalConfig, load, serve_config
from app.config.pipeline import PipelineSettings, PipelineShape
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


def test_settings_travel_in_user_config_only(tmp_path):
    pipeline = application(load(LOCAL, tmp_path), "pipeline")
    PipelineShape.parse(pipeline["args"], "args")
    by_name = {deployment["name"]: deployment["user_config"] for deployment in pipeline["deployments"]}
    assert set(by_name) == {"gateway", "retriever", "postprocessor"}
    settings = PipelineSettings.parse(by_name["gateway"], "user_config")
    assert settings.default_profile == "default"
    assert not pipeline["args"].keys() & {"profiles", "limits", "guardrail"}


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
        (lambda raw: raw["pipeline"]["models"]["smollm2"].update(application="nowhere"), "nowhere"),
        (lambda raw: raw["pipeline"]["stages"]["assembler"].update(options={"num_replicas": 2}), "placement"),
        (
            lambda raw: raw["pipeline"]["stages"]["retriever"].update(options={"max_queued_requests": 1}),
            "max_queued_requests",
        ),
        (lambda raw: raw["settings"].update(defaultProfile="none"), "none"),
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


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load(tmp_path / "none.yaml", tmp_path)
