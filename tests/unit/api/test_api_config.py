"""The gateway's configuration: cross-checks, each with the key to change in its sentence."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from gateway_site import PERSON, SETTINGS

from app.config.gateway import GatewayConfig
from app.errors import ConfigError


def changed(*path: str, to: Any) -> dict[str, Any]:
    raw: Any = deepcopy(SETTINGS)
    found = raw
    for key in path[:-1]:
        found = found.setdefault(key, {})
    found[path[-1]] = to
    return raw


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (changed("defaultProfile", to="nope"), "defaultProfile"),
        (changed("profiles", "docs", "model", to="nope"), "profiles.docs.model"),
        (changed("profiles", "smol", to={"model": "smol"}), "'smol' is used twice"),
        (changed("embeddingModel", to="smol"), "'smol' is used twice"),
        (changed("embeddingModel", to="docs"), "'docs' is used twice"),
        (changed("profiles", "v1", to={"model": "smol"}), "'v1'"),
        (changed("profiles", "static", to={"model": "smol"}), "'static'"),
        (changed("profiles", "a/b", to={"model": "smol"}), "a/b"),
        (changed("profiles", "docs", "colour", to=1), "colour"),
        (changed("profiles", "docs", "nCandidates", to=9), "profiles.docs.nCandidates"),
        (changed("profiles", "docs", "sampling", to={"maxTokens": 8000}), "profiles.docs.sampling.maxTokens"),
        (changed("profiles", "docs", "retrieval", to={"enabled": True}), "collections"),
        (changed("profiles", "docs", "retrieval", to={"collections": ["../x"]}), "collections"),
        (changed("profiles", "docs", "retrieval", to={"topK": 9, "candidates": 8}), "topK"),
        (changed("profiles", "docs", "retrieval", to={"candidates": 500}), "profiles.docs.retrieval.candidates"),
        (changed("profiles", "docs", "retrieval", to={"filter": {"a": {"like": "x"}}}), "filter"),
        (changed("profiles", "docs", "responseFormat", to={"type": "xml"}), "responseFormat"),
        (
            changed(
                *("profiles", "docs", "responseFormat"),
                to={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}},
            ),
            "profiles.docs.responseFormat",
        ),
        (changed("limits", to={"timeoutSeconds": 700}), "timeoutSeconds"),
        (changed("limits", to={"maxTopK": 300}), "maxTopK"),
        (changed("limits", to={"maxN": 0}), "maxN"),
        (changed("limits", to={"no": 0}), "no"),
    ],
)
def test_faults_name_the_key(raw: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GatewayConfig.parse(raw, "gateway")
    assert named in refused.value.message.split("(got")[0]


def test_defaults_and_both_spellings() -> None:
    config = GatewayConfig.parse(
        {"models": {"m": {}}, "profiles": {"default": {"model": "m", "system_prompt": "x"}}}, "g"
    )
    profile = config.profiles["default"]
    assert (profile.system_prompt, profile.policy, profile.retrieval.enabled) == ("x", "default", False)
    assert (config.limits.max_body_bytes, config.limits.max_n) == (4 * 1024 * 1024, 8)
    assert GatewayConfig.parse(config.model_dump(by_alias=True), "g") == config


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            "{",
            "is text that is no JSON (unexpected end of data: line 1 column 2 (char 1)): give an object as JSON text",
        ),
        ("[]", "must be an object, or an object as JSON text"),
        (5, "must be an object, or an object as JSON text"),
        (None, "must be an object, or an object as JSON text"),
        ('{"type": 7}', "JSON schema refused"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_its_key(schema: Any, told: str) -> None:
    format_ = {"type": "json_schema", "json_schema": {"schema": schema}}
    raw = {"models": {"m": {}}, "profiles": {"default": {"model": "m", "responseFormat": format_}}}
    with pytest.raises(ConfigError) as refused:
        GatewayConfig.parse(raw, "g")
    assert told in refused.value.message
    assert "profiles.default.responseFormat" in refused.value.message


def test_a_schema_as_response_format_survives_a_round_trip(settings: GatewayConfig) -> None:
    dumped = settings.model_dump(by_alias=True)
    assert GatewayConfig.parse(dumped, "gateway") == settings
    assert dumped["profiles"]["shopping"]["responseFormat"]["json_schema"]["schema"] == PERSON
