import time
from types import SimpleNamespace

import pytest

from app.answers.json_check import check_schema
from app.errors import SchemaRejected

LIMITS = SimpleNamespace(max_schema_depth=16, max_schema_bytes=65_536)


def nested(levels: int) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


GOOD = {
    "plain": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
    "root id": {"$id": "https://example.org/x", "$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
    "tree": {
        "$defs": {"t": {"properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}}},
        "$ref": "#/$defs/t",
    },
    "any json": {
        "$defs": {
            "j": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"$ref": "#/$defs/j"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/j"}},
                ]
            }
        },
        "$ref": "#/$defs/j",
    },
    "empty branch": {"pattern": "^(|.*)$"},
    "catastrophic elsewhere, linear here": {"pattern": "^(a+)+$"},
    "impossible": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "a property that is called $ref": {"properties": {"$ref": {"type": "string"}}},
    "escaped pointer": {"$defs": {"a/b~c": {"type": "string"}}, "$ref": "#/$defs/a~1b~0c"},
    "deep enough": nested(16),
    "bounds that meet": {"type": ["integer", "string"], "minimum": 5, "maximum": 5, "minLength": 0, "maxLength": 0},
    "bounds of another type": {"type": "string", "minimum": 5, "maximum": 1},
    "large bounds": {"anyOf": [{"type": "integer", "maximum": 2**63 - 1}, {"type": "number", "maximum": 1e300}]},
}
LAUGHS = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "string"}}
CHAIN = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)} | {"d900": {"type": "string"}}
BAD = {
    "/properties/a/enum: enum is empty": {"properties": {"a": {"enum": []}}},
    "/minimum: minimum is 5, over maximum 1": {"type": "integer", "minimum": 5, "maximum": 1},
    "/minimum: minimum is 5, over exclusiveMaximum 1": {"type": "number", "minimum": 5, "exclusiveMaximum": 1},
    "no number lies between exclusiveMinimum 5 and maximum 5": {"type": "number", "exclusiveMinimum": 5, "maximum": 5},
    "/items/minLength: minLength is 5, over maxLength 1": {
        "items": {"type": ["string", "null"], "minLength": 5, "maxLength": 1}
    },
    "/minItems: minItems is 5, over maxItems 1": {"type": "array", "minItems": 5, "maxItems": 1},
    "minProperties is 5, over maxProperties 1": {"type": "object", "minProperties": 5, "maxProperties": 1},
    "/type": {"type": "nope"},
    "/properties": {"type": "object", "properties": ["a"]},
    "/properties/a/pattern": {"properties": {"a": {"pattern": "(?<=["}}},
    "look-around": {"pattern": "(?=a)b"},
    "without going deeper": {"$ref": "#"},
    "going deeper": {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    "points to nothing": {"$ref": "#/$defs/none"},
    "nothing is fetched": {"$ref": "http://127.0.0.1:9/evil.json"},
    "is fetched": {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "stay inside": {"$ref": "#anchor"},
    "does not point to a schema": {"$defs": {"a": {"enum": [{"x": 1}]}}, "$ref": "#/$defs/a/enum/0"},
    "/minItems": {"type": "array", "minItems": 1_000_000_000},
    "1500 enum values": {"enum": [f"v{n}" for n in range(1500)]},
    "property names": {"properties": {f"p{n}": {} for n in range(513)}},
    "multiply": {"$defs": LAUGHS, "$ref": "#/$defs/d0"},
    "would take too long": {"oneOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]},
    "on top of each other": {"$defs": CHAIN, "$ref": "#/$defs/d0"},
    "deeper than 16": nested(17),
    "bytes": {"description": "x" * 70_000},
    "$dynamicRef": {"$dynamicRef": "#x"},
    "root only": {"properties": {"a": {"$id": "x"}}},
    "must be a JSON object": "object",
    "be a JSON object": None,
    "$schema names no draft that is known": {"$schema": "http://example.org/z"},
    "check its $schema, its $id and every $ref": {"$id": "::", "type": "object"},
    "/properties/a/maximum: 9223372036854775808 is over": {"properties": {"a": {"type": "integer", "maximum": 2**63}}},
    "/exclusiveMinimum": {"type": "integer", "exclusiveMinimum": -1e300},
    "512 characters": {"pattern": "a" * 513},
}


@pytest.mark.parametrize("name", GOOD)
def test_usable_schemas_pass(name):
    check_schema(GOOD[name], LIMITS)


@pytest.mark.parametrize("reason", BAD)
def test_faulty_schemas_are_refused_by_name_and_soon(reason):
    started = time.perf_counter()
    with pytest.raises(SchemaRejected) as caught:
        check_schema(BAD[reason], LIMITS, "response_format")

    assert reason in caught.value.message
    assert caught.value.param == "response_format"
    assert len(caught.value.message) < 500
    assert time.perf_counter() - started < 2
