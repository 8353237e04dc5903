"""What the engine's grammar compiler (xgrammar) cannot express of a valid JSON schema.

The engine says no more than that there is such a thing; a caller wants to know which one, and where. This mirrors
vLLM's own list (``has_xgrammar_unsupported_json_features``), and is asked only once the engine has refused: another
compiler may know more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.answers.schema_bounds import types_of
from app.answers.schema_tree import Path, Schema, SchemaError, walk

_MAX_DEPTH = 1000
#: Keywords by the types of values that they bind.
_UNKNOWN = {
    "multipleOf": {"integer", "number"},
    **{keyword: {"array"} for keyword in ("uniqueItems", "contains", "minContains", "maxContains")},
}
_WHOLE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
#: What regular expressions may hold, and the compiler cannot turn into a grammar.
_PATTERN_SIGNS = re.compile(r"(?<!\\)(?:\\\\)*\\[bBpP]")
_FORMATS = {
    *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference"),
    *("uri-template", "json-pointer", "relative-json-pointer"),
}


def refusal(schema: Any) -> str | None:
    """Return a sentence with the place of the first such feature; None when there is none that is known."""
    if not isinstance(schema, dict):
        return None
    for path, node in walk(schema, _MAX_DEPTH):
        for keyword, reason in _features(node):
            place: Path = (*path, keyword)
            return f"JSON schema refused at {SchemaError(place, reason)}"
    return None


def _features(node: Schema) -> Iterator[tuple[str, str]]:
    types = types_of(node)
    for keyword, bound in _UNKNOWN.items():
        if keyword in node and types & bound:
            yield keyword, f"the engine cannot keep an answer to {keyword}: leave it out."
    if "integer" in types:
        for keyword in _WHOLE:
            if isinstance(node.get(keyword), float) and not node[keyword].is_integer():
                yield keyword, "bounds of a whole number must be whole numbers."
    if "string" in types:
        yield from _of_texts(node)
    if "object" in types:
        yield from _of_objects(node)
    if isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1:
        yield "allOf", "the engine cannot join several schemas: write them as one."


def _of_texts(node: Schema) -> Iterator[tuple[str, str]]:
    if "format" in node and node["format"] not in _FORMATS:
        yield "format", "the engine does not know this format: leave it out, or use a pattern."
    if isinstance(node.get("pattern"), str) and _PATTERN_SIGNS.search(node["pattern"]):
        yield "pattern", r"the engine knows neither \b nor \p{…} in a pattern: write it without them."
    if _is_bounded_twice(node):
        yield _shape(node), "the engine cannot keep an answer to minLength or maxLength besides: use one of them."


def _of_objects(node: Schema) -> Iterator[tuple[str, str]]:
    names, patterns = node.get("propertyNames"), node.get("patternProperties")
    beside = [key for key in ("patternProperties", "properties") if key in node]
    if node.get("unevaluatedProperties", True) is not True:
        beside.append("unevaluatedProperties")
    if isinstance(names, dict) and _is_bounded_twice(names):
        yield "propertyNames", "the engine cannot keep names to a pattern and a length: use one of them."
    if names is not None and beside:
        yield "propertyNames", f"the engine cannot use it beside {beside[0]}: leave one of them out."
    if isinstance(patterns, dict) and ("properties" in node or len(patterns) > 1):
        yield "patternProperties", "the engine can use it alone and with one pattern only."


def _is_bounded_twice(node: Schema) -> bool:
    return ("pattern" in node or "format" in node) and ("minLength" in node or "maxLength" in node)


def _shape(node: Schema) -> str:
    return "pattern" if "pattern" in node else "format"
