"""The models of the weights bench: the shipped embedder, a stand-in without transformers, and a tiny one for swaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from app.config.embedder import EmbedderConfig

_LAYERS, _WIDTH, _HEADS = 6, 384, 12
_TINY_LAYERS, TINY_WIDTH = 8, 256


def load_embedder(folder: str) -> Any:
    """Load the product's embedder model from disk, as it does without sharing."""
    from app.embedders.checkpoint import _load_model

    return _load_model(EmbedderConfig(source=folder), Path(folder), "cpu")


def load_stand_in(folder: str) -> Any:
    """Load float16 weights from disk into a float32 encoder, without filling it with random numbers first."""
    from safetensors.torch import load_file

    state = {name: tensor.float() for name, tensor in load_file(Path(folder) / "model.safetensors").items()}
    with torch.device("meta"):
        model = _encoder()
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def save_stand_in(folder: Path) -> None:
    """Write the stand-in's weights."""
    from safetensors.torch import save_file

    torch.manual_seed(1)
    save_file(
        {name: tensor.half().contiguous() for name, tensor in _encoder().state_dict().items()},
        folder / "model.safetensors",
    )


def _encoder() -> Any:
    layers = [torch.nn.TransformerEncoderLayer(_WIDTH, _HEADS, 4 * _WIDTH, batch_first=True) for _ in range(_LAYERS)]
    return torch.nn.Sequential(*layers)


LOADERS = {"embedder": load_embedder, "stand-in": load_stand_in}


class Tiny(torch.nn.Module):
    """Its answer is one number per layer, and each is the version that the layer's weights belong to."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(TINY_WIDTH, TINY_WIDTH) for _ in range(_TINY_LAYERS))
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.fill(version)

    def fill(self, version: int) -> None:
        """Write a version into the weights in place, layer by layer."""
        for layer in self.layers:
            layer.weight.fill_(version / TINY_WIDTH)
            layer.bias.zero_()

    def forward(self, ones: Any) -> Any:
        return torch.stack([layer(ones)[0, 0] for layer in self.layers])
