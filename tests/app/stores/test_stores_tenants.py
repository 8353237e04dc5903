"""Every store counts, searches and deletes within a condition, as tenants need it."""

import pytest
from store_records import fill, find, ids, records

from app.stores.filters import Exists, Not, Or, parse_filter
from app.stores.tenants import tenant_filter, within_tenant


@pytest.fixture
def shared(store):
    """Two tenants' documents and one of nobody in one collection."""
    documents = [
        records(f"tenant:{tenant}/{name}", f"zebra {name}", f"more zebra {name}", metadata={"baton.tenant": tenant})
        for tenant in ("red", "blue")
        for name in ("one", "two")
    ]
    fill(store, *documents, records("loose", "zebra"))
    return store


def counts(store, tenant):
    info = store.describe("c", tenant_filter(tenant))
    listed = [found for found in store.list_collections(tenant_filter(tenant)) if found.name == "c"]
    assert listed == [info]
    return info.documents, info.passages


def test_a_tenants_documents_are_counted(shared):
    assert [counts(shared, tenant) for tenant in ("red", "green", "")] == [(2, 4), (0, 0), (5, 9)]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
@pytest.mark.parametrize(
    "raw", [None, {}, {"not": {"lang": "x"}}, {"or": [{"lang": "en"}, {"lang": {"exists": False}}]}]
)
def test_a_search_stays_within_the_tenant_whatever_the_filter(shared, mode, raw):
    hits = find(shared, "zebra", mode=mode, where=within_tenant(parse_filter(raw), "red"))
    assert len(hits) == 4
    assert all(name.startswith("tenant:red/") for name in ids(hits))


def test_an_or_over_everything_does_not_widen_it(shared):
    everything = Or((Exists("lang"), Not(Exists("lang"))))
    assert len(find(shared, "zebra", where=within_tenant(everything, "blue"))) == 4
    assert find(shared, "zebra", where=within_tenant(everything, 'it\'s "none" --')) == []


def test_deleting_by_id_deletes_the_tenants_alone(shared):
    named = ["tenant:red/one", "tenant:blue/one", "loose"]
    assert shared.delete_documents("c", named, tenant_filter("red")) == 1
    assert sorted(shared.document_ids("c")) == ["loose", "tenant:blue/one", "tenant:blue/two", "tenant:red/two"]
    assert shared.delete_documents("c", [], tenant_filter("red")) == 0


def test_deleting_all_of_a_tenants_leaves_the_others(shared):
    assert shared.delete_documents("c", None, tenant_filter("red")) == 2
    assert sorted(shared.document_ids("c")) == ["loose", "tenant:blue/one", "tenant:blue/two"]
    assert shared.delete_documents("c", None, tenant_filter("red")) == 0
    assert shared.delete_documents("c", None) == 3
    assert counts(shared, "") == (0, 0)
