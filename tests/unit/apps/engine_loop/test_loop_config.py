"""The engine loop's configuration: its defaults, and what it refuses."""

import pytest

from app.config.engine_loop import EngineLoopSettings, EngineLoopShape
from app.errors import ConfigError

BASE = {"model": "m", "source": "/models/m"}


def test_the_engine_s_defaults():
    arguments = EngineLoopShape.parse(BASE, "args").engine_arguments()
    assert arguments == {
        "model": "/models/m",
        "tokenizer": "/models/m",
        "max_model_len": 8192,
        "enable_prefix_caching": True,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 32,
        "disable_log_stats": True,
    }
    assert EngineLoopShape.parse(BASE, "args").most_requests == 32 + 64


def test_what_is_configured_goes_before_them():
    shape = EngineLoopShape.parse(
        {**BASE, "engine": {"max_num_seqs": 4, "dtype": "float16"}, "maxWaiting": 0, "embeddings": {"enabled": True}},
        "args",
    )
    arguments = shape.engine_arguments()
    assert (arguments["max_num_seqs"], arguments["dtype"], arguments["enable_prompt_embeds"]) == (4, "float16", True)
    assert shape.most_requests == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"engine": {"model": "x"}}, "use source"),
        ({"engine": {"max_model_len": 5}}, "use contextTokens"),
        ({"engine": {"enable_prompt_embeds": True}}, "use embeddings.enabled"),
        ({"engine": {"max_num_seqs": None}}, "max_num_seqs must be a whole number"),
        ({"maxWaiting": -1}, "maxWaiting"),
        ({"sourc": "x"}, "sourc"),
        ({"hooks": ["no colon"]}, "hooks"),
        ({"cache": {"enabled": True, "maxAnswers": 0}}, "maxAnswers"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_key(change, said):
    with pytest.raises(ConfigError, match=said):
        EngineLoopShape.parse({**BASE, **change}, "args")


@pytest.mark.parametrize(
    ("raw", "said"),
    [({"policy": "strict"}, "strict"), ({"sampling": {"maxTokens": 9000}}, "over limits.maxTokens")],
)
def test_settings_that_do_not_fit_together_are_refused(raw, said):
    with pytest.raises(ConfigError, match=said):
        EngineLoopSettings.parse(raw, "settings")
