"""How large a model's files are, from its folder or, without one, from its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.config.embedder import looks_like_a_path

# Models whose names do not tell their size: parameters, bytes per parameter as published.
_KNOWN = (
    ("deepseek-v3", 685e9, 1.0),
    ("deepseek-r1", 685e9, 1.0),
    ("bge-m3", 568e6, 4.0),
    ("bge-reranker-v2-m3", 568e6, 4.0),
    ("e5-small", 118e6, 4.0),
    ("minilm-l6", 23e6, 4.0),
)
_EXPERTS = re.compile(r"(?<![A-Za-z0-9.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
_ONE_BYTE = re.compile(r"fp8|int8|w8a8|8bit", re.IGNORECASE)
_HALF_BYTE = re.compile(r"awq|gptq|int4|w4a16|4bit|nvfp4|mxfp4", re.IGNORECASE)
# Four bits and their scales.
_FOUR_BITS = 0.56
# Experts share their attention: all of them together have less than their number times the size of one.
_SHARED = 0.83


def stored_bytes(source: str) -> int | None:
    """Return the bytes of a model's files: measured in a folder of this machine, else told from the name."""
    folder = Path(source)
    if looks_like_a_path(source):
        files = [path for kind in ("*.safetensors", "*.bin", "*.gguf") for path in folder.glob(kind)]
        return sum(path.stat().st_size for path in files) or None
    parameters = _parameters(source)
    return None if parameters is None else int(parameters * _stored_width(source))


def loaded_bytes(source: str, engine: Mapping[str, Any]) -> int | None:
    """Return the bytes that the weights take in an engine with these engine arguments, over all its GPUs."""
    stored = stored_bytes(source)
    quantization = str(engine.get("quantization") or "")
    if stored is None or not quantization or _stored_width(source) < 2:
        return stored  # quantized files are loaded as they are
    width = 1.0 if _ONE_BYTE.search(quantization) else _FOUR_BITS
    return int(stored * width / _stored_width(source))


def _parameters(source: str) -> float | None:
    name = source.rsplit("/", 1)[-1].lower()
    for known, parameters, _ in _KNOWN:
        if known in name and not _SIZE.search(name):
            return parameters
    if experts := _EXPERTS.search(name):
        return int(experts[1]) * float(experts[2]) * 1e9 * _SHARED
    if size := _SIZE.search(name):
        return float(size[1]) * (1e9 if size[2].lower() == "b" else 1e6)
    return None


def _stored_width(source: str) -> float:
    name = source.rsplit("/", 1)[-1].lower()
    if _HALF_BYTE.search(name):
        return _FOUR_BITS
    if _ONE_BYTE.search(name):
        return 1.0
    return next((width for known, _, width in _KNOWN if known in name and not _SIZE.search(name)), 2.0)
