"""A model's input embedding, read from its checkpoint and nothing else of it; shared by the replicas of a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.apps.engine_loop.splicing import Rows
from app.errors import ConfigError, bounded
from app.weights.sharing import fingerprint, node_store, share

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"


def load_matrix(source: str, weight: str) -> tuple[Rows, str]:
    """Return the matrix, (vocabulary, hidden size), and torch's name of its type; bfloat16 comes as ``uint16``.

    It is mapped from the file (``app/weights``): however many replicas use it, a node holds it once.
    Raises :class:`app.errors.ConfigError` naming what is missing.
    """
    import torch

    folder = _folder(source)
    found = share(node_store(), f"embedding:{source}", fingerprint(folder, weight), lambda: _read(folder, weight))
    tensor = found.module.weight.detach()
    dtype = str(tensor.dtype).removeprefix("torch.")
    rows: Rows = (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return rows, dtype


def _folder(source: str) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=["*.safetensors", _INDEX], local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):
        raise ConfigError(f"source: no folder and no model of the local cache is called {bounded(source)}") from None


def _read(folder: Path, weight: str) -> Any:
    import torch
    from safetensors import safe_open

    index = folder / _INDEX
    named = json.loads(index.read_text("utf-8"))["weight_map"] if index.is_file() else {}
    file = folder / named.get(weight, _WHOLE)
    if not file.is_file():
        raise ConfigError(f"embeddings: {file.name} is not in {bounded(str(folder), 200)}")
    with safe_open(file, framework="pt") as checkpoint:
        if weight not in checkpoint.keys():  # noqa: SIM118 - it is no mapping
            alike = sorted(name for name in checkpoint.keys() if "embed" in name or "wte" in name)[:3]  # noqa: SIM118
            raise ConfigError(f"embeddings.weight: the checkpoint has no {bounded(weight)}; it has {alike}")
        matrix = checkpoint.get_tensor(weight)
    if matrix.ndim != 2:
        raise ConfigError(f"embeddings.weight: {bounded(weight)} has {matrix.ndim} dimensions, not 2")
    return torch.nn.Embedding(*matrix.shape, _weight=matrix, _freeze=True)
