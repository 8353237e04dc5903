"""From a configuration to a store."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from app.config.retrieval import StoreConfig
from app.errors import ConfigError
from app.stores.contract import STAGE, Store

#: What the stores need that are extras.
_MODULES = {"pgvector": ("psycopg", "pgvector.psycopg"), "qdrant": ("qdrant_client",)}


def build_store(config: StoreConfig) -> Store:
    """Return the store that ``config`` describes, not yet started. Only the chosen store's library is imported.

    Raises :class:`ConfigError` with the command that installs the library when it is missing.
    """
    _require(config.kind)
    if config.kind == "pgvector":
        from app.stores.pgvector import PgVectorStore

        return PgVectorStore(config)
    if config.kind == "qdrant":
        from app.stores.qdrant import QdrantStore

        return QdrantStore(config)
    from app.stores.lancedb import LanceStore

    return LanceStore(config)


def check_packages(kind: str) -> None:
    """Raise :class:`ConfigError` where the packages of a store are not installed; nothing is imported."""
    if any(find_spec(module.partition(".")[0]) is None for module in _MODULES.get(kind, ())):
        raise _missing(kind)


def _require(kind: str) -> None:
    """Import the libraries of a store that is an extra: a missing one must stop the start, not the first request."""
    try:
        for module in _MODULES.get(kind, ()):
            import_module(module)
    except ImportError as error:
        raise _missing(kind) from error


def _missing(kind: str) -> ConfigError:
    sentence = f"store.kind: {kind} needs packages that are not installed: run `scripts/setup.sh --extra {kind}`."
    return ConfigError(sentence, STAGE)
