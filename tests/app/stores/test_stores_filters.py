"""Filters mean the same in every store, whatever they hold."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_records import KINDS, fill, find, records

from app.stores.filters import matches, parse_filter

ROWS = {
    "en": {"lang": "en", "price": 5, "stock": True},
    "zh": {"lang": "中文", "price": 20.5, "stock": False},
    "text": {"lang": "5", "price": "5", "stock": "true"},
    "quote": {"lang": "o'neil \" \\ % _", "price": 0, "stock": 1},
    "none": {},
    "odd": {"a.b": 1, "键 '名": "值", "$x": -2.5, "zero": 0.0},
}
FILTERS = [
    {},
    {"lang": "en"},
    {"lang": "中文"},
    {"lang": "o'neil \" \\ % _"},
    {"price": 5},
    {"price": "5"},
    {"price": 5.0},
    {"stock": True},
    {"stock": 1},
    {"stock": "true"},
    {"price": {"lt": 20.5}},
    {"price": {"lte": 20.5}},
    {"price": {"gt": 0}},
    {"price": {"gte": 0, "lt": 6}},
    {"price": {"ne": 5}},
    {"price": {"in": [5, "5", True]}},
    {"stock": {"in": [True, "true"]}},
    {"lang": {"exists": True}},
    {"lang": {"exists": False}},
    {"missing": {"exists": True}},
    {"missing": "x"},
    {"missing": {"ne": "x"}},
    {"not": {"price": {"lt": 6}}},
    {"not": {"not": {"lang": "en"}}},
    {"or": [{"lang": "en"}, {"price": {"gt": 20}}]},
    {"and": [{"lang": {"exists": True}}, {"or": [{"stock": True}, {"stock": False}]}]},
    {"lang": "en", "price": 5},
    {"a.b": 1},
    {"键 '名": "值"},
    {"$x": {"lt": -2}},
    {"$x": -2.5},
    {"zero": 0},
    {"lang": "en' OR '1'='1"},
    {"lang'); DROP TABLE x; --": "en"},
    {"lang": {"in": ["') OR (1=1", "en"]}},
    {"%s": "%(x)s"},
    {"{table}": "{where}"},
    {"not": {}},
    {"or": [{}]},
    {"and": [{}]},
    {"and": [{}, {"lang": "en"}]},
    {"or": [{}, {"lang": "en"}]},
    {"or": [{"not": {}}, {"lang": "en"}]},
    {"or": [{"not": {}}, {"not": {}}]},
    {"not": {"not": {}}},
    {"not": {"and": [{}, {"lang": "en"}]}},
    {"lang": "en", "not": {}},
]


@pytest.fixture(scope="module")
def filtered(stores):
    for kind in KINDS:
        fill(
            stores[kind], *[records(key, "zebra", metadata=metadata) for key, metadata in ROWS.items()], name="filters"
        )
    return stores


def expected_rows(raw):
    return {key for key, metadata in ROWS.items() if matches(parse_filter(raw), metadata)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", FILTERS, ids=str)
def test_filters_mean_the_same_in_every_store(filtered, kind, raw):
    for mode in ("vector", "text"):
        hits = find(filtered[kind], "zebra", name="filters", mode=mode, where=parse_filter(raw))
        assert {hit.passage.id.partition("#")[0] for hit in hits} == expected_rows(raw)


KEYS = st.sampled_from(["lang", "price", "stock", "a.b", "missing", "键 '名"]) | st.text(min_size=1, max_size=8).filter(
    lambda key: key.isprintable() and key not in ("and", "or", "not")
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SCALARS = (
    st.sampled_from(["en", "中文", "5", 5, 0, 20.5, True, False])
    | TEXTS
    | st.integers(-100, 100)
    | st.floats(-1e9, 1e9)
)
NUMBERS = st.integers(-100, 100) | st.floats(-(2**53), 2**53)
CONDITIONS = (
    SCALARS
    | st.builds(lambda value: {"ne": value}, SCALARS)
    | st.builds(lambda order, value: {order: value}, st.sampled_from(["lt", "lte", "gt", "gte"]), NUMBERS)
    | st.builds(lambda values: {"in": values}, st.lists(SCALARS, min_size=1, max_size=3))
    | st.builds(lambda value: {"exists": value}, st.booleans())
)
TREES = st.recursive(
    st.dictionaries(KEYS, CONDITIONS, max_size=2),
    lambda inner: (
        st.builds(lambda part: {"not": part}, inner)
        | st.builds(
            lambda word, parts: {word: parts}, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
        )
    ),
    max_leaves=5,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=TREES)
def test_any_filter_means_the_same_in_every_store(filtered, raw):
    where = parse_filter(raw)
    for kind in KINDS:
        hits = find(filtered[kind], "zebra", name="filters", mode="vector", where=where)
        assert {hit.passage.id.partition("#")[0] for hit in hits} == expected_rows(raw), kind
