"""The filter language: what is taken, what it means, what is refused and where."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import InvalidRequest
from app.stores import lancedb_sql, pgvector_sql
from app.stores.filters import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    And,
    Compares,
    Exists,
    Never,
    Not,
    OneOf,
    Or,
    matches,
    parse_filter,
)

HOSTILE = st.sampled_from("'\\a") | st.characters(exclude_categories=["Cs"], exclude_characters="\0")


def test_forms_become_typed_nodes():
    assert parse_filter({"lang": "en"}) == OneOf("lang", ("en",))
    assert parse_filter({"price": {"gte": 5, "lt": 20}}) == And(
        (Compares("price", "gte", 5.0), Compares("price", "lt", 20.0))
    )
    assert parse_filter({"a": {"ne": True}}) == Not(OneOf("a", (True,)))
    assert parse_filter({"a": {"in": [1, "x"]}, "b": {"exists": False}}) == And(
        (OneOf("a", (1.0, "x")), Not(Exists("b")))
    )
    assert parse_filter({"or": [{"a": 1}, {"not": {"b": 2}}]}) == Or((OneOf("a", (1.0,)), Not(OneOf("b", (2.0,)))))


@pytest.mark.parametrize(
    "raw", [None, {}, {"or": [{}]}, {"and": [{}, {}]}, {"or": [{}, {"lang": "en"}]}, {"not": {"not": {}}}]
)
def test_nothing_asked_is_no_filter(raw):
    assert parse_filter(raw) is None
    assert matches(None, {})


@pytest.mark.parametrize("raw", [{"not": {}}, {"lang": "en", "not": {}}, {"or": [{"not": {}}, {"not": {"or": [{}]}}]}])
def test_what_nothing_can_pass_is_one_constant(raw):
    assert parse_filter(raw) == Never()
    assert not matches(Never(), {"lang": "en"})


@pytest.mark.parametrize("raw", [{"and": [{}, {"lang": "en"}]}, {"or": [{"not": {}}, {"lang": "en"}]}])
def test_constants_inside_are_simplified_away(raw):
    assert parse_filter(raw) == OneOf("lang", ("en",))


@pytest.mark.parametrize("raw", [{"or": [{}, {"a": {"like": "x"}}]}, {"not": {}, "a": []}])
def test_a_fault_beside_a_constant_is_still_refused(raw):
    with pytest.raises(InvalidRequest):
        parse_filter(raw)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ([], "rag.filter must be an object"),
        ("lang = 'en'", "rag.filter must be an object"),
        ({"a": None}, "rag.filter.a is null"),
        ({"a": [1]}, 'rag.filter.a must be text, a number, true, false or an object such as {"in": ["en", "zh"]}'),
        ({"lang": []}, "rag.filter.lang must be text, a number, true, false or an object such as"),
        ({"$and": []}, "rag.filter.$and must be text, a number, true, false or an object such as"),
        ({"a": {"eq": [1]}}, "rag.filter.a.eq must be text, a number, true or false"),
        ({"a": {}}, "rag.filter.a must hold a condition"),
        ({"a": {"like": "x%"}}, "rag.filter.a.like is not an operator"),
        ({"a": {"$gt": 1}}, "rag.filter.a.$gt is not an operator"),
        ({"a": {"lt": "5"}}, "rag.filter.a.lt must be a number"),
        ({"a": {"lt": True}}, "rag.filter.a.lt must be a number"),
        ({"a": float("nan")}, "rag.filter.a must be finite"),
        ({"a": 2**53 + 1}, "rag.filter.a must be a number from -2^53 to 2^53"),
        ({"a": 10**400}, "rag.filter.a must be a number from -2^53 to 2^53"),
        ({"a": 1e40}, "rag.filter.a must be a number from -2^53 to 2^53"),
        ({"a": {"lt": -1e40}}, "rag.filter.a.lt must be a number from -2^53 to 2^53"),
        ({"a": {"in": [1, 10**40]}}, "rag.filter.a.in[1] must be a number from -2^53 to 2^53"),
        ({"a": {"in": []}}, "rag.filter.a.in must be a list of 1"),
        ({"a": {"in": [1, {}]}}, "rag.filter.a.in[1] must be text, a number, true or false"),
        ({"a": {"exists": 1}}, "rag.filter.a.exists must be true or false"),
        ({"and": []}, "rag.filter.and must be a list"),
        ({"or": [{"a": 1}, 5]}, "rag.filter.or[1] must be an object"),
        ({"not": [{"a": 1}]}, "rag.filter.not must be an object"),
        ({"": 1}, "rag.filter has a key"),
        ({"a\n": 1}, "rag.filter has a key"),
        ({"k" * 200: 1}, "rag.filter has a key"),
        ({"a": "x" * 2000}, "rag.filter.a is longer than"),
        ({"a": "\0"}, "rag.filter.a holds a character"),
        ({"a": "\ud800"}, "rag.filter.a holds a character"),
    ],
)
def test_faults_name_their_path(raw, sentence):
    with pytest.raises(InvalidRequest) as caught:
        parse_filter(raw)
    assert str(caught.value).startswith(sentence)
    assert caught.value.param == "rag.filter"


def test_depth_and_size_are_bounded():
    deep = {"a": 1}
    for _ in range(MAX_DEPTH):
        deep = {"not": deep}
    with pytest.raises(InvalidRequest, match="nested deeper"):
        parse_filter(deep)
    with pytest.raises(InvalidRequest, match="over 64 conditions"):
        parse_filter({f"k{number}": 1 for number in range(MAX_NODES + 1)})
    with pytest.raises(InvalidRequest, match="over 64 conditions or 256 values"):
        parse_filter({"a": {"in": [1] * MAX_VALUES}, "b": {"in": [1] * MAX_VALUES}})


@pytest.mark.parametrize(
    ("raw", "metadata", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": {"lt": 5}}, {"a": "4"}, False),
        ({"a": {"lt": 5}}, {"a": False}, False),
        ({"a": {"ne": 5}}, {}, True),
        ({"not": {"a": {"lt": 5}}}, {}, True),
        ({"a": {"exists": True}}, {"a": False}, True),
        ({"a": {"in": ["x", 2]}}, {"a": 2}, True),
    ],
)
def test_meaning(raw, metadata, expected):
    assert matches(parse_filter(raw), metadata) is expected


@settings(max_examples=30)
@given(st.text(HOSTILE))
def test_text_literals_cannot_be_left(value):
    literal = lancedb_sql.text_literal(value)
    assert literal[0] == literal[-1] == "'"
    assert literal[1:-1].replace("''", "") == value.replace("'", "")
    assert literal[1:-1].replace("''", "'") == value


@settings(max_examples=30)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_literals_keep_the_number(value):
    literal = lancedb_sql.number_literal(value)
    number = float(literal.strip("()-").removeprefix("CAST(").removesuffix(" AS DOUBLE"))
    assert (-number if literal.startswith("(-") else number) == value


@pytest.mark.parametrize("hostile", ["') OR 1=1 --", "%s", "{table}", "\\'; DROP TABLE x", "$1"])
def test_postgres_gets_values_only_as_parameters(hostile):
    raw = {hostile: {"in": [hostile, 1, True]}, "not": {hostile: {"exists": True}}}
    condition, values = pgvector_sql.compile_filter(parse_filter(raw))
    assert hostile.replace("%s", "DROP") not in condition.replace("%s", "")
    assert condition.count("%s") == len(values)
    assert values.count(hostile) == 7


@settings(max_examples=30)
@given(st.lists(st.text(HOSTILE, min_size=1), max_size=5))
def test_lexemes_are_quoted(terms):
    for literal, term in zip(pgvector_sql.tsquery_literals(terms), terms, strict=True):
        assert literal[1:-1].replace("''", "'").replace("\\\\", "\\") == term
        assert literal[1:-1].replace("''", "").count("'") == 0
