"""From a configuration to a store."""

from __future__ import annotations

from importlib import import_module

from app.config.retrieval import StoreConfig
from app.errors import ConfigError
from app.stores.contract import STAGE, Store


def build_store(config: StoreConfig) -> Store:
    """Return the store that ``config`` describes, not yet started. Only the chosen store's library is imported.

    Raises :class:`ConfigError` with the command that installs the library when it is missing.
    """
    if config.kind == "pgvector":
        _require("pgvector", "psycopg", "pgvector.psycopg")
        from app.stores.pgvector import PgVectorStore

        return PgVectorStore(config)
    if config.kind == "qdrant":
        _require("qdrant", "qdrant_client")
        from app.stores.qdrant import QdrantStore

        return QdrantStore(config)
    from app.stores.lancedb import LanceStore

    return LanceStore(config)


def _require(kind: str, *modules: str) -> None:
    """Import the libraries of a store that is an extra: a missing one must stop the start, not the first request."""
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        sentence = f"store.kind: {kind} needs packages that are not installed: run `uv sync --inexact --extra {kind}`."
        raise ConfigError(sentence, STAGE) from error
