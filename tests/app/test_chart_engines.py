"""The engines of the chart's install shapes are what Ray Serve LLM and vLLM take; importing both takes 20 s."""

import dataclasses
import warnings

import pytest

from app.config.chart.values import completed
from app.config.engine import EngineShape
from scripts.helm_render import SHAPES, shape_values

ENGINES = [(shape, name) for shape in SHAPES for name in shape_values(shape)["models"]]


@pytest.fixture(scope="module")
def engines():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own imports
        from ray.serve.llm import LLMConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.cli_args import FrontendArgs
        from vllm.tokenizers.registry import TokenizerRegistry
    fields = {field.name for kind in (AsyncEngineArgs, FrontendArgs) for field in dataclasses.fields(kind)}
    return LLMConfig, fields, TokenizerRegistry.tokenizers


@pytest.mark.parametrize(("shape", "name"), ENGINES)
def test_ray_and_vllm_know_every_argument(engines, shape, name):
    config, known, _ = engines
    engine = completed(shape_values(shape), {}).models[name].engine
    assert set(engine["engine_kwargs"]) <= known
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert config(**engine).model_id == name


def test_deepseek_is_the_newest_that_vllm_knows(engines):
    _, _, tokenizers = engines
    newest = max(name for name in tokenizers if name.startswith("deepseek"))
    assert shape_values("deepseek")["models"]["deepseek"]["engine"]["engine_kwargs"]["tokenizer_mode"] == newest


def test_the_keys_of_an_engine_are_those_that_ray_knows(engines):
    config, *_ = engines
    assert set(EngineShape.model_fields) == set(config.model_fields)
