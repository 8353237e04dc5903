"""A CLIP-type model as an embedder: texts and images become vectors of one space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.config.embedder import EmbedderConfig
from app.embedders import checkpoint
from app.embedders.huggingface import HuggingFaceEmbedder
from app.errors import ConfigError, InvalidRequest, bounded
from app.images import opened


class ClipEmbedder(HuggingFaceEmbedder):
    """An :class:`app.embedders.contract.ImageEmbedder`. Texts go through the text tower, images through the other."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__(config)
        self._processor: Any = None

    def start(self) -> None:
        """Load both towers, the tokenizer and what prepares images. Raises :class:`app.errors.ConfigError`."""
        super().start()
        from transformers import AutoImageProcessor

        try:
            folder = checkpoint.folder_of(self._config)
            self._processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"embedder.source {bounded(self._config.source, 300)} has no image processor: copy the model's "
                "preprocessor_config.json into it.",
                "retriever",
            ) from error

    def encode_images(self, images: Sequence[bytes]) -> npt.NDArray[np.float32]:
        """Embed images: float32 ``(n, dimension)``, L2-normalised. Raises InvalidRequest for one that is damaged."""
        import torch
        from torch.nn.functional import normalize

        loaded = self._require()
        if not images:
            return np.empty((0, loaded.dimension), np.float32)
        decoded = [_decoded(place, data) for place, data in enumerate(images)]
        rows = []
        for start in range(0, len(decoded), self._config.batch_size):
            pixels = self._processor(images=decoded[start : start + self._config.batch_size], return_tensors="pt")
            with torch.inference_mode():
                rows.append(normalize(loaded.model.see(pixels["pixel_values"].to(loaded.device)), dim=-1).cpu().numpy())
        return np.concatenate(rows)


def _decoded(place: int, data: bytes) -> Any:
    try:
        with opened(data) as image:
            return image.convert("RGB")
    except (OSError, OverflowError, SyntaxError, ValueError):  # Pillow's, of bytes behind a sound header
        raise InvalidRequest(f"Image {place} is damaged: send it again.", "retriever", "messages") from None


def text_tower(folder: Path, source: str) -> Any:
    """Return a CLIP model as a module that looks like any text encoder, and sees images with ``see``."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, local_files_only=True, dtype="auto", trust_remote_code=False)
    if not hasattr(model, "get_image_features") or not hasattr(model, "text_projection"):
        raise ConfigError(
            f"embedder.source {bounded(source, 300)} is no CLIP model: choose one, or another embedder.kind.",
            "retriever",
        )

    class TextTower(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.clip = model
            text = model.config.text_config
            self.config = SimpleNamespace(
                hidden_size=model.config.projection_dim,
                max_position_embeddings=text.max_position_embeddings,
                pad_token_id=text.pad_token_id,
            )

        def get_input_embeddings(self) -> Any:
            return model.text_model.get_input_embeddings()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            found = model.get_text_features(input_ids=input_ids, attention_mask=attention_mask)
            tokens = model.text_projection(found.last_hidden_state)
            return SimpleNamespace(last_hidden_state=tokens, pooler_output=found.pooler_output)

        def see(self, pixels: Any) -> Any:
            found = model.get_image_features(pixel_values=pixels.to(model.visual_projection.weight.dtype))
            return found.pooler_output.float()

    return TextTower()
