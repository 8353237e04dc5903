"""The configuration of the applications: defaults, what is refused, and what becomes of it for Serve."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from app.config.applications import (
    AnalyzeLive,
    AnalyzeStages,
    ApplicationsConfig,
    ArticlesLive,
    ArticlesStages,
    shape_args,
)
from app.config.local import ROOT, LocalConfig, load, serve_config
from app.errors import ConfigError

LOCAL = ROOT / "config" / "local.yaml"


def local(**applications):
    raw = yaml.safe_load(LOCAL.read_text("utf-8").replace("{data}", "/data").replace("{root}", str(ROOT)))
    for name, change in applications.items():
        raw["applications"][name] = {"enabled": True, **change}
    return LocalConfig.parse(raw, "local")


def sent(config):
    return {found["name"]: found for found in serve_config(config)["applications"]}


def test_what_the_product_promises_is_the_default():
    analyze, articles = AnalyzeStages(), ArticlesStages()
    assert (analyze.preprocess.replicas, articles.summary.replicas) == (2, 2)
    for sentiment in (analyze.sentiment, articles.sentiment):
        assert (sentiment.max_batch_size, sentiment.batch_wait_seconds) == (10, 0.1)
    assert articles.entities.max_batch_size == 32
    settings = AnalyzeLive()
    assert (settings.max_input_tokens, settings.min_summary_words) == (512, 30)
    assert (settings.summary.min_tokens, settings.summary.max_tokens) == (30, 100)
    live = ArticlesLive()
    assert (live.entity_threshold, live.max_entities) == (0.95, 5)


def test_a_part_that_is_given_keeps_the_other_defaults():
    config = ApplicationsConfig.parse(
        {"analyze": {"stages": {"preprocess": {"tokenizer": "/x"}}}, "articles": {"stages": {"summary": {}}}}, "it"
    )
    assert (config.analyze.stages.preprocess.replicas, config.articles.stages.summary.replicas) == (2, 2)


def test_both_are_off_unless_they_are_turned_on():
    assert set(sent(load(LOCAL, Path("/data")))) == {"model-smollm2", "pipeline"}
    assert set(sent(local(analyze={}))) == {"model-smollm2", "pipeline", "analyze"}


def test_the_command_that_the_documentation_shows_turns_both_on(tmp_path):
    page = (ROOT / "docs" / "applications.md").read_text("utf-8")
    (command,) = re.findall(r"^(sed .*) >my.yaml$", page, re.M)
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True, timeout=10)
    (tmp_path / "my.yaml").write_text(done.stdout)
    assert set(sent(load(tmp_path / "my.yaml", Path("/data")))) >= {"analyze", "articles"}


def test_an_application_shares_limits_keys_guardrail_and_traces_with_the_pipeline():
    application = sent(local(articles={"settings": {"maxEntities": 2}}))["articles"]
    assert (application["route_prefix"], application["import_path"]) == ("/articles", "app.main:build_articles")
    deployments = {found["name"]: found for found in application["deployments"]}
    live = deployments["articles"]["user_config"]
    assert live["maxEntities"] == 2
    assert live["limits"]["allowedHosts"] == ["localhost"]
    assert live["guardrail"]["policies"]["default"]["terms"]
    assert live["auth"]["enabled"] is False
    steps = {name: found["user_config"] for name, found in deployments.items() if name != "articles"}
    assert steps == {key: {"traces": live["traces"]} for key in ("sentiment", "summary", "entities")}
    ArticlesLive.parse(live, "user_config")


def test_replicas_and_options_are_overrides_and_no_arguments():
    stages = {"preprocess": {"options": {"ray_actor_options": {"num_cpus": 0.5}}}, "summary": {"replicas": 3}}
    application = sent(local(analyze={"stages": stages}))["analyze"]
    deployments = {found["name"]: found for found in application["deployments"]}
    assert deployments["preprocess"]["num_replicas"] == 2
    assert deployments["preprocess"]["ray_actor_options"] == {"num_cpus": 0.5}
    assert deployments["summary"]["num_replicas"] == 3
    assert application["args"] == shape_args(AnalyzeStages.parse(application["args"], "args"))
    assert not {"replicas", "options"} & set(application["args"]["summary"])


def test_options_that_say_replicas_win():
    options = {"autoscaling_config": {"max_replicas": 4}}
    application = sent(local(analyze={"stages": {"summary": {"options": options}}}))["analyze"]
    (summary,) = [found for found in application["deployments"] if found["name"] == "summary"]
    assert "num_replicas" not in summary
    assert summary["autoscaling_config"]["max_replicas"] == 4


@pytest.mark.parametrize(
    ("application", "told"),
    [
        ({"stages": {"summary": {"backend": {"kind": "spacy"}}}}, "stages.summary.backend.kind"),
        ({"stages": {"summary": {"backend": {"source": " "}}}}, "set source, which kind transformers needs"),
        ({"stages": {"summary": {"backend": {"kind": "model", "source": "other"}}}}, "application 'model-other'"),
        (
            {"stages": {"sentiment": {"backend": {"kind": "model", "source": "smollm2", "negativeLabels": ["bad"]}}}},
            "negativeLabels names none of the labels that a model gives: 1 star, 2 stars",
        ),
        ({"stages": {"sentiment": {"options": {"max_queued_requests": 1}}}}, "use the key of the deployment itself"),
        ({"stages": {"sentiment": {"maxBatchSize": 0}}}, "maxBatchSize"),
        ({"settings": {"summary": {"minTokens": 200}}}, "minTokens must not be larger than maxTokens"),
        ({"settings": {"policy": "strict"}}, "names 'strict', which settings.guardrail.policies lacks"),
        ({"route": "/other"}, "route"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(application, told):
    with pytest.raises(ConfigError) as raised:
        local(analyze=application)
    assert told in str(raised.value)


def test_a_profile_must_not_lie_behind_an_application():
    raw = local(analyze={}).model_dump(mode="json", by_alias=True)
    raw["settings"]["profiles"]["analyze"] = {"model": "smollm2"}
    with pytest.raises(ConfigError, match="hides the profile"):
        LocalConfig.parse(raw, "local")


def test_the_core_model_is_found_by_its_name():
    backend = {"kind": "model", "source": "smollm2"}
    config = local(analyze={"stages": {"summary": {"backend": backend}}})
    assert config.applications.analyze.stages.summary.backend.model_application == "model-smollm2"
