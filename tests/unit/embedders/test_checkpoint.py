"""A model folder that cannot work is refused before anything heavy is loaded, with a sentence that names it."""

import pickle
import sys

import pytest

from app.config.embedder import EmbedderConfig, looks_like_a_path
from app.embedders.checkpoint import load
from app.errors import ConfigError


def refusal(source):
    with pytest.raises(ConfigError) as caught:
        load(EmbedderConfig(source=str(source)))
    assert str(source) in str(caught.value)
    assert caught.value.stage == "retriever"
    return str(pickle.loads(pickle.dumps(caught.value)))


@pytest.fixture
def folder(tmp_path):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_missing_folder(tmp_path):
    assert "is not a folder: mount the model there or set embedder.source" in refusal(tmp_path / "nowhere")


def test_file_instead_of_folder(folder):
    assert "is not a folder" in refusal(folder / "config.json")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer files: copy the model's tokenizer.json"),
        ("model.safetensors", "has no weights: copy the model's *.safetensors"),
    ],
)
def test_incomplete_folder(folder, missing, reason):
    (folder / missing).unlink()
    assert reason in refusal(folder)


def test_the_checks_need_no_torch(folder):
    (folder / "tokenizer.json").unlink()
    before = set(sys.modules)
    refusal(folder)
    assert not {"torch", "transformers"} & (set(sys.modules) - before)


@pytest.mark.parametrize("source", ["/models/embed", "./models", "../x", "~/models/e5", "models/embed/e5"])
def test_paths_are_told(source):
    assert looks_like_a_path(source)


@pytest.mark.parametrize("source", ["intfloat/multilingual-e5-small", "bert-base-uncased"])
def test_hub_ids_are_told(source):
    assert not looks_like_a_path(source)
