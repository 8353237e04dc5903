"""The conditions of rules, one by one and together."""

import time

import pytest

from app.config.routing import RuleConfig
from app.errors import ConfigError
from app.routing.rules import Asked, estimated_tokens, language, matching

SHORT, LONG = "What is a stage?", "the quick brown fox jumps over the lazy dog " * 200


def rule(**when):
    return RuleConfig.parse({"when": when, "variant": "small"}, "rule")


def asks(question=SHORT, **given):
    return Asked("r1", texts=(question,), question=question, **given)


def matches(found, asked):
    return matching([found], asked, "smol") is not None


@pytest.mark.parametrize(
    ("when", "holding", "failing"),
    [
        ({"promptTokensBelow": 100}, asks(), asks(LONG)),
        ({"promptTokensAbove": 100}, asks(LONG), asks()),
        ({"promptTokensAbove": 1, "promptTokensBelow": 100}, asks(), asks(LONG)),
        ({"language": "zh"}, asks("护栏做什么？"), asks()),
        ({"language": "en"}, asks(), asks("护栏做什么？")),
        ({"keys": ["team-a", "team-b"]}, asks(key_id="team-b"), asks(key_id="team-c")),
        ({"keys": ["team-a"]}, asks(key_id="team-a"), asks()),
        ({"jsonAsked": True}, asks(json_asked=True), asks()),
        ({"jsonAsked": False}, asks(), asks(json_asked=True)),
        ({"priority": "batch"}, asks(priority="batch"), asks()),
        ({"busyAbove": 0.5}, asks(busy={"smol": 0.6}.get), asks(busy={"smol": 0.5}.get)),
        ({"busyAbove": 0}, asks(busy={"smol": 0.1}.get), asks(busy={"other": 1.0}.get)),
        ({"language": "en", "jsonAsked": True}, asks(json_asked=True), asks("护栏", json_asked=True)),
    ],
)
def test_a_rule_matches_when_all_its_conditions_hold(when, holding, failing):
    assert matches(rule(**when), holding)
    assert not matches(rule(**when), failing)


def test_the_first_rule_that_matches_decides():
    rules = [rule(jsonAsked=True), rule(language="en"), rule(promptTokensBelow=1000)]
    assert matching(rules, asks(), "smol") is rules[1]
    assert matching(rules, asks("护栏"), "smol") is rules[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What does it cost?", "en"),
        ("Qu'est-ce que c'est?", "en"),
        ("请用 docker run 启动服务，然后检查日志", "zh"),
        ("Translate 护栏 into English, please, and say why", "en"),
        ("ガードレールとは何ですか", None),
        ("Что это такое?", None),
        ("12 + 34", None),
        ("", None),
    ],
)
def test_the_script_tells_the_language(text, found):
    assert language(text) == found


def test_tokens_are_estimated_near_what_tokenizers_count():
    english = "Each stage of the pipeline runs either in the gateway's process or as a deployment of its own. " * 20
    chinese = "流水线的每个阶段要么运行在网关进程中，要么作为独立的部署运行。" * 20
    assert estimated_tokens([english]) == pytest.approx(420, rel=0.25)  # 21 tokens a sentence
    assert estimated_tokens([chinese]) == pytest.approx(500, rel=0.3)


def test_a_huge_prompt_is_measured_in_no_time():
    text = ("word 词 " * 700_000)[:4_000_000]
    began = time.perf_counter()
    matches(rule(promptTokensBelow=10, language="zh"), asks(text))
    assert time.perf_counter() - began < 0.25


@pytest.mark.parametrize(
    ("when", "goal", "told"),
    [
        ({}, {"variant": "small"}, "at least one condition"),
        ({"keys": []}, {"variant": "small"}, "keys is empty"),
        ({"promptTokensAbove": 10, "promptTokensBelow": 11}, {"variant": "small"}, "no prompt is below 11"),
        ({"language": "fr"}, {"variant": "small"}, "language"),
        ({"busyAbove": 2}, {"variant": "small"}, "busyAbove"),
        ({"colour": "red"}, {"variant": "small"}, "colour"),
        ({"jsonAsked": True}, {}, "either variant or model"),
        ({"jsonAsked": True}, {"variant": "a", "model": "b"}, "either variant or model"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(when, goal, told):
    with pytest.raises(ConfigError, match=told):
        RuleConfig.parse({"when": when, **goal}, "rule")
