"""Tenants: whatever a caller asks, a tenant's condition stands beside it and its documents lie apart."""

from __future__ import annotations

from typing import Any

import pytest

from app.config.embedder import EmbedderConfig
from app.config.retrieval import RetrieverConfig
from app.errors import CollectionNotFound, InvalidRequest
from app.messages import RetrievalQuery
from app.stages.retriever import Retriever, RetrieverStructure
from app.stores.filters import matches, parse_filter
from app.stores.tenants import within_tenant
from app.testing.embedder import FakeEmbedder
from app.testing.store import MemoryStore

TEXTS = {"red": "The zebra of red", "blue": "The zebra of blue", "": "The zebra of nobody"}
WIDE: list[Any] = [
    None,
    {},
    {"or": [{}, {"lang": "en"}]},
    {"not": {"lang": "xx"}},
    {"or": [{"lang": "en"}, {"not": {"lang": "en"}}]},
    {"lang": {"exists": False}},
]


@pytest.fixture
def retriever():
    structure = RetrieverStructure(embedder=EmbedderConfig(kind="fake"))
    stage = Retriever(structure, RetrieverConfig(), store=MemoryStore(), embedder=FakeEmbedder(32))
    stage.start()
    for tenant, text in TEXTS.items():
        stage.upsert_documents("shared", [{"id": "same", "text": text}, {"id": f"only-{tenant}", "text": text}], tenant)
    yield stage
    stage.close()


def found(stage, tenant, flt=None, mode="hybrid"):
    query = RetrievalQuery("zebra", ("shared",), 10, 10, flt, mode, tenant=tenant)
    table = stage.run(query).passages
    return sorted(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("flt", WIDE, ids=str)
@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_no_filter_widens_a_tenants_search(retriever, flt, mode):
    for tenant in ("red", "blue"):
        text = TEXTS[tenant]
        assert found(retriever, tenant, flt, mode) == [(f"only-{tenant}#0", text), ("same#0", text)]
    assert found(retriever, "green", flt, mode) == []


def test_a_filter_still_narrows_a_tenants_search(retriever):
    assert found(retriever, "red", {"lang": "en"}) == []


def test_no_tenant_reaches_the_documents_of_all(retriever):
    assert [name for name, _ in found(retriever, "")] == [
        "only-#0",
        "same#0",
        "tenant:blue/only-blue#0",
        "tenant:blue/same#0",
        "tenant:red/only-red#0",
        "tenant:red/same#0",
    ]


def test_a_document_replaces_its_own_tenants_only(retriever):
    done = retriever.upsert_documents("shared", [{"id": "same", "text": "Another zebra"}], "red")
    assert done.documents == 1
    assert ("same#0", TEXTS["blue"]) in found(retriever, "blue")
    assert ("same#0", TEXTS[""]) in found(retriever, "")
    assert ("same#0", "Another zebra") in found(retriever, "red")
    assert retriever.upsert_documents("shared", [{"id": "same", "text": "Another zebra"}], "red").unchanged == 1


def test_a_tenant_deletes_its_own_documents_only(retriever):
    ids = ["same", "only-blue", "only-", "tenant:blue/same", "tenant:blue/only-blue"]
    assert retriever.delete_documents("shared", ids, "red") == 1
    retriever.delete_collection("shared", "red")
    assert found(retriever, "red") == []
    assert len(found(retriever, "blue")) == 2
    assert len(found(retriever, "")) == 4
    with pytest.raises(CollectionNotFound):
        retriever.delete_collection("shared", "red")


def test_a_tenant_sees_collections_with_documents_of_its_own(retriever):
    retriever.upsert_documents("others", [{"text": "zebra"}], "blue")
    counts = [(row["name"], row["documents"]) for row in retriever.list_collections("red")]
    assert counts == [("shared", 2)]
    assert [row["name"] for row in retriever.list_collections("green")] == []
    assert [(row["name"], row["documents"]) for row in retriever.list_collections()] == [("others", 1), ("shared", 6)]


@pytest.mark.parametrize(
    "document", [{"metadata": {"baton.tenant": "blue"}}, {"baton.tenant": "blue"}, {"id": "tenant:blue/x"}]
)
@pytest.mark.parametrize("tenant", ["", "red"])
def test_nobody_stamps_a_document_himself(retriever, document, tenant):
    with pytest.raises(InvalidRequest, match=r"reserved|begins with tenant:"):
        retriever.upsert_documents("shared", [{"text": "zebra", **document}], tenant)


@pytest.mark.parametrize("flt", [{"baton.tenant": "red"}, {"and": [{"not": {"baton.tenant": {"in": ["red"]}}}]}])
def test_nobody_filters_by_tenant(flt):
    with pytest.raises(InvalidRequest, match="reserved field"):
        parse_filter(flt)


@pytest.mark.parametrize("flt", WIDE, ids=str)
def test_the_condition_is_false_for_every_other_document(flt):
    where = within_tenant(parse_filter(flt), "red")
    for metadata in ({}, {"lang": "en"}, {"baton.tenant": "blue"}, {"baton.tenant": "Red"}, {"baton.tenant": True}):
        assert not matches(where, metadata)
