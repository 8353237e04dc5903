"""Stores whose libraries are extras: a missing library is told with the command that installs it."""

import sys
from types import ModuleType

import pytest

from app.config.retrieval import StoreConfig
from app.errors import ConfigError
from app.stores.build import build_store
from app.stores.pgvector import PgVectorStore
from app.stores.qdrant import QdrantStore

URIS = {"pgvector": "postgresql://127.0.0.1/baton", "qdrant": ":memory:"}
MODULES = {"pgvector": ("psycopg", "pgvector", "pgvector.psycopg"), "qdrant": ("qdrant_client",)}


def install(monkeypatch, *kinds, without=()):
    """Put empty modules in place of the libraries of ``kinds``; those in ``without`` cannot be imported."""
    for kind in kinds:
        for name in MODULES[kind]:
            monkeypatch.setitem(sys.modules, name, None if name in without else ModuleType(name))


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("pgvector", "psycopg"), ("pgvector", "pgvector.psycopg"), ("qdrant", "qdrant_client")],
)
def test_a_missing_library_names_the_command_that_installs_it(monkeypatch, kind, missing):
    install(monkeypatch, *MODULES, without=(missing,))
    with pytest.raises(ConfigError) as caught:
        build_store(StoreConfig(kind=kind, uri=URIS[kind]))
    message = caught.value.message
    assert message.startswith(f"store.kind: {kind} ")
    assert f"`scripts/setup.sh --extra {kind}`" in message
    assert "\n" not in message
    assert caught.value.stage == "retriever"


@pytest.mark.parametrize(("kind", "store"), [("pgvector", PgVectorStore), ("qdrant", QdrantStore)])
def test_a_store_needs_its_own_library_only(monkeypatch, kind, store):
    others = [name for other, names in MODULES.items() if other != kind for name in names]
    install(monkeypatch, *MODULES, without=others)
    assert isinstance(build_store(StoreConfig(kind=kind, uri=URIS[kind])), store)


def test_the_default_store_needs_neither(monkeypatch):
    install(monkeypatch, *MODULES, without=sum(MODULES.values(), ()))
    build_store(StoreConfig())
