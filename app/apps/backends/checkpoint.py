"""Hugging Face models for the transformers backends: found, loaded, and on the CPU shared by all replicas of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.backends import BackendConfig
from app.config.embedder import looks_like_a_path
from app.delivery.hub import pull_from_hub, whole_copy
from app.errors import ConfigError, StageUnavailable, bounded
from app.logs import logger
from app.weights.sharing import Held, fingerprint, node_store, share

log = logger("applications")
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

    device = _device(config, stage)
    folder = folder_of(config, stage)

    def from_folder() -> Any:
        found = getattr(transformers, kind).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return found.eval().requires_grad_(False)

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        held = _shared(folder, kind, from_folder, stage) if config.shared_weights and device == "cpu" else None
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
    if looks_like_a_path(config.source):
        folder = Path(config.source).expanduser()
        if not (folder / "config.json").is_file():
            raise fault(config, stage, "has no config.json", "name the folder that holds the model's files")
        return folder
    if not config.local_files_only:
        return pull_from_hub(config.source, "main", log.info)
    cached = whole_copy(config.source)
    if cached is None:
        remedy = "name a mounted folder, or set localFilesOnly to false to download it"
        raise fault(config, stage, "is not in the local hub cache", remedy)
    return cached


def _device(config: BackendConfig, stage: str) -> str:
    import torch

    has_gpu = torch.cuda.is_available()
    if config.device == "auto":
        return "cuda" if has_gpu else "cpu"
    if config.device != "cpu" and not has_gpu:
        raise ConfigError(
            f"stages.{stage}.backend.device is {config.device} but no GPU is visible: set it to auto or cpu, or give "
            "the replica a GPU (options.ray_actor_options.num_gpus)",
            stage,
        )
    return config.device


def _shared(folder: Path, kind: str, from_folder: Callable[[], Any], stage: str) -> Held | None:
    """Return the node's copy of the model; None when its store is away, since a private copy serves as well."""
    name = f"{folder.resolve()}:{kind}"
    try:
        return share(node_store(), name, fingerprint(folder, name), from_folder)
    except StageUnavailable as error:
        log.warning("the %s loads weights of its own: %s", stage, error)
        return None


def _window(model: Any, tokenizer: Any) -> int:
    """Return the longest input in tokens that tokenizer and model allow."""
    limits = [int(tokenizer.model_max_length), int(getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT)]
    known = [limit for limit in limits if limit < _NO_LIMIT]
    return min(known, default=_USUAL_WINDOW)
