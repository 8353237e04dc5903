"""Configuration of retrieval and ingestion: the store, the search and the cutting of documents into passages."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from app.config.base import Config

#: How the addresses of each kind of store begin, where they hold ``://``.
SCHEMES = {
    "lancedb": ("s3", "s3+ddb", "gs", "az", "abfs", "abfss", "file", "db", "memory", "shared-memory"),
    "pgvector": ("postgresql", "postgres"),
    "qdrant": ("http", "https"),
}


class StoreConfig(Config):
    """Where the collections live. Shapes the deployment: a change restarts the retriever."""

    kind: Literal["lancedb", "pgvector", "qdrant"] = "lancedb"
    """Which vector store holds the collections."""
    uri: str = Field(default="data/index", min_length=1, max_length=1024)
    """LanceDB: a folder or an object-store URI. PgVector: ``postgresql://user@host/base``. Qdrant: URL, folder or
    ``:memory:``."""
    secret_env: str | None = None
    """Environment variable that holds the password (pgvector) or the API key (qdrant)."""
    secret_file: str | None = None
    """File that holds that secret; read once at start."""
    storage_options: dict[str, str] = Field(default_factory=dict)
    """LanceDB on object storage: region, endpoint and the like, passed through verbatim. No secrets here."""

    @model_validator(mode="after")
    def _uri_is_of_its_kind(self) -> Self:
        scheme, found, _ = self.uri.partition("://")
        known = SCHEMES[self.kind]
        if found and scheme not in known:
            told = ", ".join(f"{name}://" for name in known)
            raise ValueError(f"uri begins with {scheme}://, which {self.kind} does not read; it reads {told}")
        return self

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if self.secret_env and self.secret_file:
            raise ValueError("set secretEnv or secretFile, not both")
        if self.storage_options and self.kind != "lancedb":
            raise ValueError("storageOptions belong to kind lancedb only")
        return self


class RetrieverConfig(Config):
    """What a question may ask of the search. Changes in place, with nothing restarted.

    How a profile searches stands in the profile (``app/config/gateway.py``: ``RetrievalDefaults``).
    """

    max_top_k: int = Field(default=64, ge=1, le=1000)
    """The most a request may ask for as ``top_k``."""
    max_candidates: int = Field(default=256, ge=1, le=4096)
    """The most a request may ask for as ``candidates``."""
    max_collections: int = Field(default=8, ge=1, le=64)
    """The most collections that one question may search."""


class ChunkingConfig(Config):
    """How documents are cut into passages, in estimated embedder tokens (see ``app/ingestion/chunking.py``)."""

    size_tokens: int = Field(default=120, ge=16, le=8192)
    """The largest passage. A passage that still overflows the embedder's window is cut in two."""
    overlap_tokens: int = Field(default=20, ge=0, le=1024)
    """How much of the end of a passage is repeated at the start of the next; whole sentences only."""

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap_tokens * 2 > self.size_tokens:
            raise ValueError("overlapTokens must be at most half of sizeTokens")
        return self
