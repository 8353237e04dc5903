"""The input embedding as checkpoints hold it: whole, in shards, in bfloat16; and what is said where it is not there."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from app.apps.engine_loop.embedding_matrix import load_matrix
from app.apps.engine_loop.vllm_engine import as_tensor
from app.errors import ConfigError

NAME = "model.embed_tokens.weight"
MATRIX = torch.arange(40, dtype=torch.float32).reshape(10, 4) / 7


def write(folder, dtype=torch.float32, file="model.safetensors", **more):
    save_file({NAME: MATRIX.to(dtype), **more}, folder / file)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_type_arrives_as_it_is(tmp_path, dtype):
    write(tmp_path, dtype)
    rows, name = load_matrix(str(tmp_path), NAME)
    assert rows.shape == (10, 4)
    assert rows.itemsize == dtype.itemsize
    assert torch.equal(as_tensor(rows, name), MATRIX.to(dtype))


def test_read_only_rows_become_a_tensor_without_a_copy():
    rows = np.arange(8, dtype=np.uint16).reshape(2, 4)
    rows.flags.writeable = False
    found = as_tensor(rows, "bfloat16")
    assert (found.dtype, found.shape) == (torch.bfloat16, (2, 4))
    assert found.data_ptr() == rows.__array_interface__["data"][0]


def test_a_checkpoint_in_shards_names_the_file(tmp_path):
    write(tmp_path, file="model-00002-of-00002.safetensors")
    index = {"weight_map": {NAME: "model-00002-of-00002.safetensors", "lm_head.weight": "model-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    rows, _ = load_matrix(str(tmp_path), NAME)
    assert np.array_equal(rows, MATRIX.numpy())


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.safetensors is not in"):
        load_matrix(str(tmp_path), NAME)
    write(tmp_path, **{"norm.weight": torch.ones(4)})
    with pytest.raises(ConfigError, match=r"no 'wte'; it has \['model\.embed_tokens\.weight'\]"):
        load_matrix(str(tmp_path), "wte")
    with pytest.raises(ConfigError, match="1 dimensions"):
        load_matrix(str(tmp_path), "norm.weight")
    with pytest.raises(ConfigError, match="no folder and no model"):
        load_matrix("nobody/nothing", NAME)
