"""From a folder or a Hugging Face id to an encoder in memory; every fault is a sentence that names the source."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from app.config.embedder import EmbedderConfig
from app.errors import ConfigError, bounded
from app.weights import checkpoints
from app.weights.sharing import Held

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
# Tokenizers without a limit of their own report a number of about 1e30.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An encoder ready to run: the torch module, the tokenizer (truncating at ``window``) and how to use them.

    ``held`` is the version of shared weights that the module is made of, None where they are private.
    """

    model: Any
    tokenizer: Any
    device: str
    dimension: int
    window: int
    pad_id: int
    pooling: str
    prefixes: dict[str, str]
    held: Held | None


def load(config: EmbedderConfig) -> Checkpoint:
    """Load the encoder of ``config``. Raises :class:`ConfigError` naming the source and what to change."""
    folder = folder_of(config)
    _check_files(config.source, folder)
    device = checkpoints.pick_device(config.device, "embedder.device", "retriever")
    try:
        held = _share_model(config, folder) if config.shared_weights and device == "cpu" else None
        model = _load_model(config, folder, device) if held is None else held.module
        tokenizer, longest = _load_tokenizer(config, folder)
    except ConfigError:
        raise
    except Exception as error:  # whatever a foreign model's files make transformers raise
        reason = f"cannot be loaded ({type(error).__name__}: {bounded(str(error), 200)})"
        raise _fault(config.source, reason, "check the model's files") from error
    window = _window(config, model, longest)
    tokenizer.no_padding()
    tokenizer.enable_truncation(window)
    pooling, prefixes = _conventions(config, folder)
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        device=device,
        dimension=_dimension(config, model),
        window=window,
        pad_id=int(getattr(model.config, "pad_token_id", None) or 0),
        pooling=pooling,
        prefixes=prefixes,
        held=held,
    )


def folder_of(config: EmbedderConfig) -> Path:
    """Return the folder of the model's files: the mounted one, or that of a hub id in the local cache."""
    return checkpoints.folder_of(config.source, config.local_files_only, "embedder", partial(_fault, config.source))


def _check_files(source: str, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        raise _fault(source, "has no config.json", "set embedder.source to the folder that holds the model's files")
    if not names.intersection(_TOKENIZER_FILES):
        raise _fault(source, "has no tokenizer files", "copy the model's tokenizer.json into it")
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHT_FILES):
        raise _fault(source, "has no weights", "copy the model's *.safetensors into it")


def _load_model(config: EmbedderConfig, folder: Path, device: str) -> Any:
    import torch
    from transformers import AutoModel

    if config.kind == "clip":
        from app.embedders.clip import text_tower

        model = text_tower(folder, config.source)
    else:
        model = AutoModel.from_pretrained(folder, local_files_only=True, dtype="auto", trust_remote_code=False)
    if getattr(model.config, "is_encoder_decoder", False):
        raise _fault(config.source, "is an encoder-decoder model", "choose an encoder such as multilingual-e5-small")
    _cast(model, getattr(torch, config.dtype))
    return model.eval().requires_grad_(False).to(device)


def _share_model(config: EmbedderConfig, folder: Path) -> Held | None:
    """Return the node's copy of the model; None when its store is away, since a private copy serves as well."""
    # Whoever waits for the first replica to publish should have the long imports behind it.
    from transformers import AutoModel  # noqa: F401

    return checkpoints.node_copy(folder, config.dtype, lambda: _load_model(config, folder, "cpu"), "the embedder")


def _cast(model: Any, dtype: Any) -> None:
    """Compute in ``dtype``, but leave the input embedding as stored and cast what is looked up in it.

    A multilingual vocabulary is most of a small encoder: kept in half precision it stays mapped from the file,
    shared between processes, instead of becoming hundreds of private megabytes.
    """
    table = model.get_input_embeddings()
    for parameter in model.parameters():
        if parameter is not table.weight and parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    if table.weight.dtype != dtype:
        table.register_forward_hook(_Recast(dtype))


@dataclass(frozen=True, slots=True)
class _Recast:
    """A forward hook; not a lambda, since a shared module is pickled without its tensors."""

    dtype: Any

    def __call__(self, _module: Any, _inputs: Any, looked_up: Any) -> Any:
        return looked_up.to(self.dtype)


def _load_tokenizer(config: EmbedderConfig, folder: Path) -> tuple[Any, int]:
    """Return the tokenizer and the longest input that its files allow.

    Its tokenizer.json is read as it is: through transformers, a multilingual vocabulary takes three times the time and
    300 MB more. Older models without that file go the long way.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    ready = folder / "tokenizer.json"
    if ready.exists():
        longest = _side_file(config, folder, "tokenizer_config.json").get("model_max_length", _NO_LIMIT)
        return Tokenizer.from_file(str(ready)), int(longest)
    converted = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not getattr(converted, "is_fast", False):
        raise _fault(config.source, "has no fast tokenizer", "add the model's tokenizer.json")
    return converted.backend_tokenizer, int(converted.model_max_length)


def _window(config: EmbedderConfig, model: Any, longest: int) -> int:
    limits = [config.max_tokens]
    if longest < _NO_LIMIT:
        limits.append(longest)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions:
        limits.append(int(positions) - _reserved_positions(model.named_modules()))
    return min(limits)


def _reserved_positions(modules: Iterable[tuple[str, Any]]) -> int:
    """Return how many rows of the position table no token uses: RoBERTa's numbering starts after the padding id."""
    for name, module in modules:
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0


def _dimension(config: EmbedderConfig, model: Any) -> int:
    found = int(model.config.hidden_size)
    if config.dimension not in (None, found):
        raise ConfigError(
            f"embedder.dimension is {config.dimension} but {bounded(config.source)} makes vectors of {found} numbers: "
            "set embedder.dimension to that, or choose another model",
            "retriever",
        )
    return found


def _conventions(config: EmbedderConfig, folder: Path) -> tuple[str, dict[str, str]]:
    """Return the pooling and the prefixes: the configuration's where set, else those that the model's files state."""
    pooling = "model" if config.kind == "clip" else config.pooling
    if pooling == "auto":
        pooling = "cls" if _side_file(config, folder, "1_Pooling/config.json").get("pooling_mode_cls_token") else "mean"
    prompts = _side_file(config, folder, "config_sentence_transformers.json").get("prompts") or {}
    query = prompts.get("query", "") if config.query_prefix is None else config.query_prefix
    passage = config.passage_prefix
    if passage is None:
        passage = prompts.get("passage", prompts.get("document", ""))
    return pooling, {"query": query, "passage": passage}


def _side_file(config: EmbedderConfig, folder: Path, name: str) -> dict[str, Any]:
    """Return the content of one of the model's JSON files; empty when there is none."""
    path = folder / name
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _fault(config.source, f"has a damaged {name}", "copy the file again or remove it") from None
    return content if isinstance(content, dict) else {}


def _fault(source: str, reason: str, remedy: str) -> ConfigError:
    return ConfigError(f"embedder.source {bounded(source, 300)} {reason}: {remedy}.", "retriever")
