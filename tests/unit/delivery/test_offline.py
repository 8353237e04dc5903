"""What was pulled is enough: a process without a network loads a model's tokenizer, config and weights from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from app.testing.hub import FakeHub
from tests.unit.prompting.model_folder import CHATML, write_model

ROOT = Path(__file__).parents[3]
MODEL = "otter/otter-small"
#: Loads a model by the ways that Baton's processes take, and by the one that the engine takes; every socket fails.
LOADS = """
import json, socket, sys

def refuse(*_):
    raise AssertionError("somebody asks the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
source = sys.argv[1]
from app.errors import ConfigError
from app.prompting.tokenizer import load
from app.weights.checkpoints import folder_of
folder = folder_of(source, True, "embedder", lambda reason, remedy: ConfigError(f"{source} {reason}: {remedy}"))
ours = load(source)
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer
theirs = AutoTokenizer.from_pretrained(source)
with safe_open(folder / "model.safetensors", framework="np") as weights:
    shape = list(weights.get_tensor("embed").shape)
told = {
    "ours": ours.encode("an otter"),
    "theirs": theirs.encode("an otter", add_special_tokens=False),
    "prompt": ours.render([{"role": "user", "content": "hi"}]),
    "layers": AutoConfig.from_pretrained(source).num_hidden_layers,
    "shape": shape,
}
print(json.dumps(told))
"""


def write_small_model(folder):
    """Write a tokenizer of single bytes, a config and weights."""
    write_model(folder)
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 260, **shape}), "utf-8")
    save_file({"embed": np.ones((260, 8), np.float32)}, folder / "model.safetensors")


def run(arguments, cache, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_CACHE": str(cache), "HF_HOME": str(cache)} | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["a hub", "a folder"])
def pulled(request, tmp_path):
    """What the model is called once the command line has pulled it; where it came from is gone by then."""
    command, source = ["-m", "app.ops.models", "pull"], tmp_path / "there"
    write_small_model(source)
    if request.param == "a hub":
        with FakeHub({MODEL: {path.name: path.read_bytes() for path in source.iterdir()}}) as hub:
            run([*command, MODEL], tmp_path / "hub", HF_ENDPOINT=hub.url)
        return MODEL
    run([*command, str(source), "--out", str(tmp_path / "here")], tmp_path / "hub")
    source.rename(tmp_path / "gone")
    return str(tmp_path / "here")


def test_a_process_without_a_network_loads_what_was_pulled(pulled, tmp_path):
    told = json.loads(run(["-c", LOADS, pulled], tmp_path / "hub", HF_HUB_OFFLINE="1"))
    assert told["ours"] == told["theirs"]
    assert len(told["ours"]) == len("an otter")
    assert told["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert (told["layers"], told["shape"]) == (3, [260, 8])
