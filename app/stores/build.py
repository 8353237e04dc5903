"""From a configuration to a store."""

from __future__ import annotations

from app.config.retrieval import StoreConfig
from app.stores.contract import Store


def build_store(config: StoreConfig) -> Store:
    """Return the store that ``config`` describes, not yet started. Only the chosen store's library is imported."""
    if config.kind == "pgvector":
        from app.stores.pgvector import PgVectorStore

        return PgVectorStore(config)
    if config.kind == "qdrant":
        from app.stores.qdrant import QdrantStore

        return QdrantStore(config)
    from app.stores.lancedb import LanceStore

    return LanceStore(config)
