"""Is the answer the JSON that was asked for? The answer's own text is never changed: a repair is reported beside it.

- ``valid``: the whole answer parses and follows the schema.
- ``repaired``: a value inside it does, after safe repairs (``app/answers/json_repairs.py``).
- ``truncated``: the token limit cut the answer before the value was complete. Never called valid or repaired.
- ``invalid``: anything else; ``path`` is the JSON pointer of the first failing place when it parses.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from app.answers.json_check import compile_schema, failure
from app.answers.json_repairs import parse, repaired_values
from app.answers.schema_tree import ANSWER_DEPTH, SchemaError

_CACHED_VALIDATORS = 64
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}

JsonReport = dict[str, Any]
Fault = tuple[str | None, str]


class JsonChecker:
    """Checks answers against ``response_format``; keeps compiled schemas. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._validators: OrderedDict[str, Any] = OrderedDict()

    def check(self, text: str, finish_reason: str, response_format: Mapping[str, Any]) -> JsonReport | None:
        """Return the report of ``ChoiceReport.json`` for one answer; None for a format that is not JSON."""
        schema = _schema_of(response_format)
        if schema is None:
            return None
        try:
            value = parse(text.strip())
        except ValueError as error:
            return self._check_broken(text, finish_reason, schema, error)
        if finish_reason == "length" and not isinstance(value, dict | list):
            return _report("truncated", message="the token limit may have cut the value")
        fault = self._fault(value, schema)
        return _report("valid") if fault is None else _report("invalid", *fault)

    def _check_broken(self, text: str, finish_reason: str, schema: Mapping[str, Any], error: ValueError) -> JsonReport:
        if finish_reason == "length":
            return _report("truncated", message="the token limit cut the answer before the JSON was complete")
        first: Fault | None = None
        for found in repaired_values(text):
            fault = self._fault(found.value, schema)
            if fault is None:
                return _report("repaired", repaired=found.text, repairs=found.repairs)
            first = first or fault
        return _report("invalid", *(first or (None, _parse_message(error))))

    def _fault(self, value: Any, schema: Mapping[str, Any]) -> Fault | None:
        if _depth(value) > ANSWER_DEPTH:
            return "", f"is nested deeper than {ANSWER_DEPTH} levels"
        try:
            validator = self._validator(schema)
        except SchemaError as fault:
            return "", f"cannot be checked: the schema is faulty at {fault}"
        error = next(iter(validator.iter_errors(value)), None)
        return None if error is None else failure(error, schema)

    def _validator(self, schema: Mapping[str, Any]) -> Any:
        key = json.dumps(schema, sort_keys=True)
        with self._lock:
            if key in self._validators:
                self._validators.move_to_end(key)
                return self._validators[key]
        validator = compile_schema(schema)
        with self._lock:
            self._validators[key] = validator
            if len(self._validators) > _CACHED_VALIDATORS:
                self._validators.popitem(last=False)
        return validator


def _schema_of(response_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind = response_format.get("type")
    if kind == "json_object":
        return _ANY_OBJECT
    if kind == "json_schema":
        schema = response_format.get("json_schema", {}).get("schema")
        return schema if isinstance(schema, Mapping) else _ANY_OBJECT
    return None


def _report(
    status: str,
    path: str | None = None,
    message: str | None = None,
    *,
    repaired: str | None = None,
    repairs: tuple[str, ...] = (),
) -> JsonReport:
    return {"status": status, "path": path, "message": message, "repaired": repaired, "repairs": list(repairs)}


def _parse_message(error: ValueError) -> str:
    # Only the parser's own words: other errors may quote the answer.
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error.msg} at character {error.pos}"
    return "is not JSON"


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        level = [
            part
            for node in level
            if isinstance(node, dict | list)
            for part in (node.values() if isinstance(node, dict) else node)
        ]
        depth += bool(level)
    return depth
