"""The two file formats of a prepared model's folder: JSON settings and safetensors weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented UTF-8."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_safetensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]], dtype: Literal["F16", "BF16"]) -> None:
    """Write arrays of two-byte numbers; for ``BF16``, which numpy lacks, they hold the bit patterns.

    The format is eight bytes with the header's length, the header as JSON, then the numbers.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, values in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [place, place + values.nbytes]}
        place += values.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for values in tensors.values():
            file.write(values.tobytes())
