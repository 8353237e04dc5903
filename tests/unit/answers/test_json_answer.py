import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.answers.json_answer import JsonChecker

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"items": {"enum": ["x"]}}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GOOD = '{"name": "Ada", "age": 36}'


def check(text, finish_reason="stop", schema=SCHEMA):
    response_format = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}
    return JsonChecker().check(text, finish_reason, response_format)


def test_a_valid_answer():
    expected = {"status": "valid", "path": None, "message": None, "repaired": None, "repairs": []}
    assert check(f"  {GOOD}\n") == expected


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('{"name": "Ada"}', "", "required"),
        ('{"name": "Ada", "age": "secret"}', "/age", "type 'integer'"),
        ('{"name": "Ada", "age": 1, "tags": ["x", "secret"]}', "/tags/1", "enum ['x']"),
        ('{"name": "Ada", "age": 1, "secret": 2}', "", "additionalProperties False"),
        ("[1]", "", "type 'object'"),
        ('{"name": secret}', None, "is not JSON: Expecting value at character 9"),
        ('{"name": "Ada", "age": NaN}', None, "is not JSON"),
        ("secret", None, "is not JSON"),
        ("", None, "is not JSON"),
        ("[" * 5000 + "]" * 5000, None, "is not JSON"),
        ('{"name": ' + "[" * 40 + "]" * 40 + "}", "", "deeper than 32"),
    ],
)
def test_an_invalid_answer_names_the_place_and_never_the_text(text, path, message):
    report = check(text)

    assert report["status"] == "invalid"
    assert report["path"] == path
    assert message in report["message"]
    assert "secret" not in report["message"]


@pytest.mark.parametrize(
    ("text", "repairs", "repaired"),
    [
        (f"```json\n{GOOD}\n```", ["fence"], GOOD),
        (f"Here you are:\n```json\n{GOOD}\n```\nI hope so.", ["fence", "surrounding_text"], GOOD),
        (f"Sure! {GOOD} Bye.", ["surrounding_text"], GOOD),
        ('{"name": "Ada", "age": 36,\n}', ["trailing_comma"], '{"name": "Ada", "age": 36\n}'),
        (f"See [1] and {{this}}: {GOOD}", ["surrounding_text"], GOOD),
        (
            '```\n{"name": "a ```x``` , }", "age": 1,}\n```',
            ["fence", "trailing_comma"],
            '{"name": "a ```x``` , }", "age": 1}',
        ),
    ],
)
def test_safe_repairs_are_reported(text, repairs, repaired):
    report = check(text)

    assert report["status"] == "repaired"
    assert report["repairs"] == repairs
    assert report["repaired"] == repaired


def test_backticks_inside_a_value_need_no_repair():
    assert check('{"name": "```x```", "age": 1}')["status"] == "valid"


@pytest.mark.parametrize("text", [GOOD[:-3], "", "   \n\n", f"```json\n{GOOD}\n", '{"name": "Ada", "age": 36,}', "12"])
def test_an_answer_cut_by_the_token_limit_is_truncated(text):
    assert check(text, "length", {"type": "integer"} if text == "12" else SCHEMA)["status"] == "truncated"


def test_a_complete_value_followed_by_blanks_up_to_the_limit_is_valid():
    assert check(GOOD + " " * 50, "length")["status"] == "valid"
    assert check('{"name": 1}', "length")["status"] == "invalid"


def test_a_scalar_schema_is_met_by_a_scalar():
    assert check("12", "stop", {"type": "integer"})["status"] == "valid"


@pytest.mark.parametrize(
    ("text", "status"), [("{}", "valid"), ("[]", "invalid"), ("so: {}", "repaired"), ("1", "invalid")]
)
def test_json_object(text, status):
    assert JsonChecker().check(text, "stop", {"type": "json_object"})["status"] == status


def test_text_format_is_not_checked():
    assert JsonChecker().check("x", "stop", {"type": "text"}) is None


def test_a_faulty_schema_is_reported_and_does_not_raise():
    assert "faulty" in check("{}", "stop", {"type": "nope"})["message"]


def test_a_rule_behind_a_reference_is_named():
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    report = check('{"a": "secret"}', "stop", schema)

    assert report["path"] == "/a"
    assert "type" in report["message"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\,}]{[`\n ', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='k",}', max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(alphabet="ab", max_size=2), VALUES, max_size=3))
@settings(max_examples=40)
def test_repair_never_changes_a_value(value):
    text = json.dumps(value, indent=1)
    fenced = f"```json\n{text}\n```"

    report = JsonChecker().check(fenced, "stop", {"type": "json_object"})
    assert report["status"] == "repaired"
    assert json.loads(report["repaired"]) == value


def test_many_opening_brackets_take_little_time():
    assert check("{" * 20_000)["status"] == "invalid"


def test_validators_serve_several_threads():
    checker = JsonChecker()
    seen = []

    def work(number):
        response_format = {"type": "json_schema", "json_schema": {"schema": {"const": number % 3}}}
        seen.extend(checker.check(str(number % 3), "stop", response_format)["status"] for _ in range(30))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["valid"] * 180
