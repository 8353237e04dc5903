"""Whatever a model refuses is said in our words: no regular expression, no word of the library that checks."""

import re

import pytest
from pydantic import BaseModel

from app.api.application import build_api
from app.config.base import Config
from app.config.embedder import EmbedderConfig
from app.config.gateway import GatewayConfig
from app.config.guardrail import TermRule
from app.config.local import LocalConfig
from app.config.pipeline import PipelineShape
from app.errors import ConfigError
from app.faults import sentence_of
from app.testing.pipeline import FakePipeline

LIBRARY = re.compile(
    r"should|Extra inputs|permitted|discriminator|pattern|\^|Value error|valid (string|integer|dict)|required"
    r"|instance of"
)


def models(root=BaseModel):
    for model in root.__subclasses__():
        # A chart's values are refused by its own schema and templates.
        if model.__module__.startswith("app.") and not model.__module__.startswith("app.config.chart"):
            yield model
        yield from models(model)


def patterns(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for part in schema.values():
            yield from patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from patterns(part)


def test_every_pattern_of_a_model_has_words():
    assert callable(build_api), "imports all models of requests"
    found = {pattern for model in [LocalConfig, *models()] for pattern in patterns(model.model_json_schema())}
    found |= set(patterns(build_api(FakePipeline, GatewayConfig).openapi()))  # parameters of paths and queries
    assert len(found) >= 5
    for pattern in found:
        fault = {
            "type": "string_pattern_mismatch",
            "ctx": {"pattern": pattern},
            "msg": f"String should match pattern '{pattern}'",
        }
        assert not LIBRARY.search(sentence_of(fault)), pattern


@pytest.mark.parametrize(
    ("model", "raw", "sentence"),
    [
        (EmbedderConfig, {"source": "a/b", "device": "tpu"}, "x.device: must be auto, cpu, cuda or a GPU by number"),
        (EmbedderConfig, {"source": "a/b", "kind": "onnx"}, "x.kind: must be one of 'huggingface', 'clip' or 'fake'"),
        (EmbedderConfig, {"source": "a/b", "threads": 1.5}, "x.threads: must be a whole number (got 1.5)"),
        (EmbedderConfig, {"source": "a/b", "threads": 0}, "x.threads: must be greater than or equal to 1 (got 0)"),
        (EmbedderConfig, {"source": "a/b", "thread": 1}, "x.thread: there is no such key"),
        (EmbedderConfig, [], "x: must be an object"),
        (EmbedderConfig, {}, "x: set source to the folder"),
        (GatewayConfig, {"profiles": {"no name!": {"model": "m"}}}, "x.profiles.no name!: must be 1 to 63 letters"),
        (
            GatewayConfig,
            {"models": {"m": {}}, "profiles": {"default": {"model": "m", "responseFormat": {}}}},
            "x.profiles.default.responseFormat: must have a 'type' that is one of 'text', 'json_object', 'json_schema'",
        ),
        (PipelineShape, {}, "must be given"),
    ],
)
def test_a_configuration_is_refused_in_our_words(model: type[Config], raw, sentence):
    with pytest.raises(ConfigError) as caught:
        model.parse(raw, "x")
    assert sentence in caught.value.message
    assert not LIBRARY.search(caught.value.message)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ([""], "x.terms[0]: must have at least 1 character (got '')"),
        ([5], "x.terms[0]: must be text (got 5)"),
        ([], "x.terms: must have at least 1 item, not 0"),
        ("bomb", "x.terms: must be a list (got 'bomb')"),
    ],
)
def test_a_fault_is_told_once_and_only_single_values_are_echoed(terms, sentence):
    with pytest.raises(ConfigError) as caught:
        TermRule.parse({"terms": terms}, "x")
    assert caught.value.message == sentence


def test_a_file_and_the_key_in_it_are_told_apart():
    with pytest.raises(ConfigError) as caught:
        TermRule.parse({"terms": ["a"], "acton": "block"}, "terms.jsonl, line 3:")
    assert caught.value.message == "terms.jsonl, line 3: acton: there is no such key"
