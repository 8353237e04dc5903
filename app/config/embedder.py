"""The configuration of the embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from app.config.base import Config
from app.faults import DEVICE_PATTERN


def looks_like_a_path(source: str) -> bool:
    """Tell a folder from a Hugging Face id (``owner/name``)."""
    return source.startswith(("/", "./", "../", "~")) or source.count("/") > 1 or Path(source).is_dir()


class EmbedderConfig(Config):
    """Which encoder turns texts into vectors, and how it runs."""

    kind: Literal["huggingface", "clip", "fake"] = "huggingface"
    """`huggingface`: an encoder loaded with transformers. `clip`: a CLIP-type model, which reads images too. `fake`:
    hashed bags of words without weights, for benches."""

    source: str = Field(default="", max_length=1024)
    """Folder with the model's files (a mounted path), or a Hugging Face model id. Required unless `kind` is `fake`."""

    pooling: Literal["auto", "mean", "cls"] = "auto"
    """How token states become one vector. `auto`: as the model's own `1_Pooling/config.json` says, else `mean`."""

    query_prefix: str | None = Field(default=None, max_length=512)
    """Text put before each query. Unset: the `query` prompt of the model's own files, else nothing."""

    passage_prefix: str | None = Field(default=None, max_length=512)
    """Text put before each passage. Unset: the `passage` or `document` prompt of the model's files, else nothing."""

    max_tokens: int = Field(default=512, ge=8, le=131_072)
    """Longest input in tokens, special tokens and prefix included; the model's own window is never exceeded."""

    batch_size: int = Field(default=32, ge=1, le=1024)
    """Texts per forward pass."""

    device: str = Field(default="auto", pattern=DEVICE_PATTERN)
    """`auto` takes a GPU when there is one; `cpu`, `cuda` and `cuda:1` insist."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of the computation. The half precisions are for GPUs; vectors then differ in the third decimal."""

    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of a forward pass."""

    local_files_only: bool = True
    """Never call a model hub; a model id must then lie in the local hub cache."""

    shared_weights: bool = False
    """One copy of the weights per node, mapped by every replica (and by retriever and postprocessor alike), on the CPU.
    A replica that finds changed files publishes them, and the others follow within seconds, between requests. Move new
    files into their place: those in use are mapped, and must not be written to."""

    dimension: int | None = Field(default=None, ge=1, le=65_536)
    """Expected size of the vectors: a model of another size is refused. The fake takes this size (1,024 when unset)."""

    @model_validator(mode="after")
    def _needs_a_source(self) -> Self:
        if self.kind != "fake" and not self.source.strip():
            raise ValueError("set source to the folder of an embedding model or to a Hugging Face model id")
        if self.kind == "clip" and self.shared_weights:
            raise ValueError("sharedWeights is not there for kind clip: leave it out")
        return self
