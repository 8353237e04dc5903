"""A tiny file in the packed format becomes a checkpoint with the right numbers, names and tokens."""

import json
import struct

import numpy as np
import pytest
from tokenizers import Tokenizer

from app.errors import ConfigError
from app.ops.models_e5 import build

HIDDEN, LAYERS, FEED_FORWARD, POSITIONS = 32, 2, 64, 8
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", ":", "▁ray", "ray", "你", "好", "<mask>"]
MATRICES = {"q": 32, "k": 32, "v": 32, "ao": 32, "fi": 64, "fo": 32}


def four_bit(rng, rows, columns):
    """Return random blocks as bytes and the numbers they stand for."""
    scale = rng.uniform(0.01, 0.1, (rows, columns // 32)).astype(np.float16)
    nibbles = rng.integers(0, 16, (rows, columns // 32, 32), dtype=np.uint8)
    packed = b"".join(
        scale[row, block].tobytes() + (nibbles[row, block, :16] | nibbles[row, block, 16:] << 4).tobytes()
        for row in range(rows)
        for block in range(columns // 32)
    )
    values = (nibbles.astype(np.float32) - 8) * scale[..., None].astype(np.float32)
    return packed, values.reshape(rows, columns)


def tensors(rng):
    """Yield (name, kind, bytes, values)."""
    shapes = {"emb.pos": (POSITIONS, HIDDEN), "emb.type": (2, HIDDEN), "emb.ln.w": (HIDDEN,), "emb.ln.b": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"l{layer}.{name}.b": (rows,) for name, rows in MATRICES.items()}
        shapes |= {f"l{layer}.{name}.{kind}": (HIDDEN,) for name in ("aln", "oln") for kind in "wb"}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        yield name, 0, values.tobytes(), values
    quantised = {"emb.word": (len(PIECES), HIDDEN)}
    for layer in range(LAYERS):
        for name, rows in MATRICES.items():
            quantised[f"l{layer}.{name}.w"] = (rows, FEED_FORWARD if name == "fo" else HIDDEN)
    for name, (rows, columns) in quantised.items():
        packed, values = four_bit(rng, rows, columns)
        yield name, 1, packed, values


def packed_file(path):
    rng = np.random.default_rng(7)
    text = [piece.encode() for piece in PIECES]
    borders = np.concatenate(([0], np.cumsum([len(piece) for piece in text]))).astype("<u4")
    scores = np.array([0, 0, 0, 0] + [-2.0 - index / 8 for index in range(len(PIECES) - 5)] + [0], "<f4")
    head = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, LAYERS, 4, FEED_FORWARD, len(PIECES), POSITIONS, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(b"".join(text)))
    head += borders.tobytes() + scores.tobytes() + b"".join(text)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF41, 1, 0x41)
    parts = list(tensors(rng))
    place = len(head) + 4 + sum(2 + len(name) + 21 for name, *_ in parts)
    directory = struct.pack("<i", len(parts))
    for name, kind, data, values in parts:
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, values.size, place, len(data))
        place += len(data)
    path.write_bytes(head + directory + b"".join(data for _, _, data, _ in parts))
    return {name: values for name, _, _, values in parts}


def read_safetensors(path):
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert {entry["dtype"] for entry in header.values()} == {"F16"}
    return {
        name: np.frombuffer(
            raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]], np.float16
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }


@pytest.fixture
def built(tmp_path):
    values = packed_file(tmp_path / "tiny.bin")
    folder = tmp_path / "out"
    folder.mkdir()
    build(tmp_path / "tiny.bin", folder)
    return folder, values


def test_every_number_is_where_transformers_looks_for_it(built):
    folder, values = built
    state = read_safetensors(folder / "model.safetensors")
    names = {
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.LayerNorm.bias": "emb.ln.b",
        "encoder.layer.0.attention.self.query.weight": "l0.q.w",
        "encoder.layer.1.attention.self.key.bias": "l1.k.b",
        "encoder.layer.1.attention.output.dense.weight": "l1.ao.w",
        "encoder.layer.1.attention.output.LayerNorm.weight": "l1.aln.w",
        "encoder.layer.0.intermediate.dense.weight": "l0.fi.w",
        "encoder.layer.0.output.dense.weight": "l0.fo.w",
        "encoder.layer.0.output.LayerNorm.bias": "l0.oln.b",
    }
    for name, packed in names.items():
        assert state[name].shape == values[packed].shape
        assert np.allclose(state[name], values[packed], rtol=1e-3, atol=1e-6), name
    assert len(state) == 5 + 2 + LAYERS * 16


def test_settings_state_sizes_pooling_and_prefixes(built):
    folder, _ = built
    config = json.loads((folder / "config.json").read_text())
    sizes = (config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"], config["vocab_size"])
    assert sizes == (HIDDEN, LAYERS, 4, len(PIECES))
    assert config["layer_norm_eps"] == 1e-12
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    assert prompts == {"query": "query: ", "passage": "passage: "}
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode_mean_tokens"] is True


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("query: ray", ["<s>", "▁query", ":", "▁ray", "</s>"]),
        ("query:\u3000\u200b ｒａｙ\n", ["<s>", "▁query", ":", "▁ray", "</s>"]),
        ("r\x01ay", ["<s>", "▁ray", "</s>"]),
        ("你好", ["<s>", "▁", "你", "好", "</s>"]),
        ("", ["<s>", "</s>"]),
    ],
)
def test_tokens(built, text, pieces):
    tokenizer = Tokenizer.from_file(str(built[0] / "tokenizer.json"))
    assert tokenizer.encode(text).tokens == pieces


@pytest.mark.parametrize("damage", [lambda raw: b"GGUF" + raw[4:], lambda raw: raw[: len(raw) // 2], lambda _: b""])
def test_damaged_file_is_one_sentence(tmp_path, damage):
    path = tmp_path / "tiny.bin"
    packed_file(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"tiny.bin is damaged: install its package again"):
        build(path, tmp_path)
