"""Hugging Face models for the transformers backends: found, loaded, and on the CPU shared by all replicas of a node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.backends import BackendConfig
from app.errors import ConfigError, bounded
from app.weights import checkpoints
from app.weights.sharing import Held

_NO_LIMIT = 1_000_000
_USUAL_WINDOW = 512


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory with its tokenizer; ``held`` is its version of shared weights, None where they are private."""

    model: Any
    tokenizer: Any
    device: str
    window: int
    held: Held | None


def load(config: BackendConfig, kind: str, stage: str) -> Loaded:
    """Load ``config.source`` with the class ``kind`` of transformers. Raises :class:`ConfigError`."""
    import transformers

    device = checkpoints.pick_device(config.device, f"stages.{stage}.backend.device", stage)
    folder = folder_of(config, stage)

    def from_folder() -> Any:
        found = getattr(transformers, kind).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return found.eval().requires_grad_(False)

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        shared = config.shared_weights and device == "cpu"
        held = checkpoints.node_copy(folder, kind, from_folder, f"the {stage}") if shared else None
        model = from_folder().to(device) if held is None else held.module
    except ConfigError:
        raise
    except Exception as error:  # whatever a foreign model's files make transformers raise
        reason = f"cannot be loaded as {kind} ({type(error).__name__})"
        raise fault(config, stage, reason, "check the model's files and its kind") from error
    return Loaded(model, tokenizer, device, _window(model, tokenizer), held)


def fault(config: BackendConfig, stage: str, reason: str, remedy: str) -> ConfigError:
    """Return the error for a source that cannot be used."""
    return ConfigError(f"stages.{stage}.backend.source {bounded(config.source, 300)} {reason}: {remedy}.", stage)


def folder_of(config: BackendConfig, stage: str) -> Path:
    """Return the folder of the model's files: the named one, or that of a hub id in the local cache."""

    def described(reason: str, remedy: str) -> ConfigError:
        return fault(config, stage, reason, remedy)

    key = f"stages.{stage}.backend"
    return checkpoints.folder_of(config.source, config.local_files_only, key, described, marker="config.json")


def _window(model: Any, tokenizer: Any) -> int:
    """Return the longest input in tokens that tokenizer and model allow."""
    limits = [int(tokenizer.model_max_length), int(getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT)]
    known = [limit for limit in limits if limit < _NO_LIMIT]
    return min(known, default=_USUAL_WINDOW)
