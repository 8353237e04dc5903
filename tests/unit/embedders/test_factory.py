"""The configuration decides which embedder is built and is refused with a sentence when it cannot work."""

import pytest

from app.config.embedder import EmbedderConfig
from app.embedders.factory import build_embedder
from app.embedders.huggingface import HuggingFaceEmbedder
from app.errors import ConfigError, StageUnavailable
from app.testing.embedder import FakeEmbedder


def test_fake_takes_size_and_window_from_the_configuration():
    embedder = build_embedder(EmbedderConfig(kind="fake", dimension=16, max_tokens=8))
    assert isinstance(embedder, FakeEmbedder)
    assert (embedder.dimension, embedder.max_tokens) == (16, 8)


def test_fake_has_the_size_of_gpu_encoders_by_default():
    assert build_embedder(EmbedderConfig(kind="fake")).dimension == 1024


@pytest.mark.parametrize(
    ("source", "name"),
    [("/models/multilingual-e5-small", "multilingual-e5-small"), ("BAAI/bge-m3", "BAAI/bge-m3")],
)
def test_name_is_the_id_or_the_last_part_of_the_path(source, name):
    embedder = build_embedder(EmbedderConfig(source=source))
    assert isinstance(embedder, HuggingFaceEmbedder)
    assert embedder.name == name


def test_encode_before_start_says_so():
    with pytest.raises(StageUnavailable, match="not started"):
        build_embedder(EmbedderConfig(source="a/b")).encode(["x"], "query")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({}, "set source to the folder of an embedding model"),
        ({"source": "  "}, "set source to the folder of an embedding model"),
        ({"source": "a/b", "device": "tpu"}, "embedder.device"),
        ({"source": "a/b", "maxTokens": 1}, "embedder.maxTokens"),
        ({"source": "a/b", "poolng": "mean"}, "embedder.poolng"),
    ],
)
def test_faulty_configuration_names_the_key(raw, sentence):
    with pytest.raises(ConfigError) as caught:
        EmbedderConfig.parse(raw, "embedder")
    assert sentence in str(caught.value)
