"""Pydantic's faults in our words: what a value must be, for callers and for whoever writes a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Names of models, profiles and policies: safe in a path, in a label and as part of an application's name.
NAME_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$"
#: Names of models and, behind a colon, of their adapters.
MODEL_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(:[a-zA-Z0-9][a-zA-Z0-9._-]{0,62})?$"
#: Names of collections, as the stores take them.
COLLECTION_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
#: Names that OpenAI lets callers give to schemas, tools and speakers.
OPENAI_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
#: Names of the guardrail's patterns.
RULE_PATTERN = r"^[A-Za-z0-9_.\-]{1,64}$"
#: Where an encoder runs.
DEVICE_PATTERN = r"^(auto|cpu|cuda(:\d{1,3})?)$"
#: Where spans are sent; empty for nowhere.
ENDPOINT_PATTERN = r"^(https?://[^\s/]+(/\S*)?)?$"
#: Where a web page comes from, as browsers spell it in the header Origin.
ORIGIN_PATTERN = r"^https?://([a-z0-9_.\-]+|\[[0-9a-f:]+\])(:\d{1,5})?$"
#: A name under which web pages reach us, without a port.
HOST_PATTERN = r"^([a-z0-9_\-]+\.)*[a-z0-9_\-]+$"
#: A host that may be fetched from: a name, every name below one, an address, or all.
HOST_RULE_PATTERN = r"^(\*|(\*\.)?([a-z0-9_\-]+\.)*[a-z0-9_\-]+|[0-9a-f:]*:[0-9a-f:.]*)$"
#: A page of the web by its whole address, without a user's name in it.
WEB_PATTERN = r"^https?://[^\s/@?#\\]+(/[^\s?#\\]*)?$"
#: A media type, without parameters.
MEDIA_TYPE_PATTERN = r"^[a-z0-9][a-z0-9!#$&^_.+\-]*/[a-z0-9][a-z0-9!#$&^_.+\-]*$"
#: SHA-256 of an API key.
KEY_HASH_PATTERN = r"^sha256:[0-9a-f]{64}$"
#: A file by its whole path; a folder likewise, or none.
FILE_PATTERN = r"^/.+$"
FOLDER_PATTERN = r"^(/.+)?$"
#: Names of keys and tenants.
KEY_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
#: Tenants of keys; empty for none.
TENANT_PATTERN = rf"^$|{KEY_PATTERN}"
#: How long a batch may take.
HOURS_PATTERN = r"^[0-9]{1,4}h$"
#: What Python imports, behind a colon (or a full stop, as Ray takes it as well) the class or function.
CLASS_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
IMPORT_PATTERN = r"^[A-Za-z_][\w.]*[:.][A-Za-z_]\w*$"
#: A line of ASCII, as HTTP's headers hold it.
ASCII_PATTERN = r"^[\x20-\x7e]+$"
#: Names of rollouts, which become parts of Kubernetes' names.
ROLLOUT_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
#: Names with ``*`` for any characters, as the scopes of keys hold them.
SCOPE_PATTERN = r"^[a-zA-Z0-9._@:*-]{1,128}$"

_ALLOWED = {
    NAME_PATTERN: "must be 1 to 63 letters (a-z, A-Z), digits, '.', '_' or '-', beginning with a letter or digit",
    MODEL_PATTERN: "must be the name of a model (1 to 63 letters, digits, '.', '_' or '-'), or model:adapter",
    COLLECTION_PATTERN: "must be 1 to 64 small letters (a-z), digits, '_' or '-', beginning with a letter or digit",
    OPENAI_PATTERN: "must be 1 to 64 letters (a-z, A-Z), digits, '_' or '-'",
    RULE_PATTERN: "must be 1 to 64 letters (a-z, A-Z), digits, '.', '_' or '-'",
    DEVICE_PATTERN: "must be auto, cpu, cuda or a GPU by number, like cuda:1",
    ENDPOINT_PATTERN: "must be a whole address like http://collector:4318/v1/traces, or empty",
    KEY_HASH_PATTERN: "must be sha256: and 64 hexadecimal digits, as `python -m app.ops.keys hash` prints them",
    FILE_PATTERN: "must be a whole path, which begins with a slash",
    FOLDER_PATTERN: "must be a whole path, which begins with a slash, or empty",
    KEY_PATTERN: "must be 1 to 63 small letters (a-z), digits, '.', '_' or '-', beginning with a letter or digit",
    TENANT_PATTERN: "must be 1 to 63 small letters (a-z), digits, '.', '_' or '-', beginning with a letter or digit, "
    "or empty",
    HOURS_PATTERN: "must be a number of hours, like 24h",
    CLASS_PATTERN: "must be an import path, like module:Class",
    IMPORT_PATTERN: "must be an import path, like module:function",
    ASCII_PATTERN: "must be one line of ASCII: letters, digits, blanks and signs",
    ROLLOUT_PATTERN: "must be 1 to 40 small letters (a-z), digits or '-', with a letter or digit at both ends",
    SCOPE_PATTERN: "must be a name, or one with * for any characters, like docs-*",
    ORIGIN_PATTERN: "must be an origin in small letters and without a path, like https://chat.example.com",
    HOST_RULE_PATTERN: "must be a host's name in small letters, *. and a name for those below it, or *",
    WEB_PATTERN: "must be a whole address like https://wiki.example.com/w/api.php",
    MEDIA_TYPE_PATTERN: "must be a media type in small letters, like text/html",
    HOST_PATTERN: "must be a host's name in small letters and without a port, like baton.example.com",
}
#: Whole numbers beyond this are none for most who read them.
_INT64 = 2**63
_WORDS = {
    "missing": "must be given",
    "extra_forbidden": "there is no such key",
    "none_required": "is not supported: leave it out",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
_OPENING = re.compile(r"^(?:Input|String|List|Tuple|Dictionary|Value) should ")
#: The kinds of ``response_format``: Pydantic puts the kind that was chosen into the path, where no field has its name.
_KINDS = ("text", "json_object", "json_schema")
_FORMATS = ("response_format", "responseFormat")


def sentence_of(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, to stand after its path: ``must be a whole number``."""
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind == "int_type" and _is_whole(fault.get("input")):
        return f"must be a whole number from {-_INT64} to {_INT64 - 1}"
    if kind in _WORDS:
        return _WORDS[kind]
    if kind == "string_pattern_mismatch" and context.get("pattern") in _ALLOWED:
        return _ALLOWED[context["pattern"]]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return f"must have a {context['discriminator']} that is one of {_tags(context)}"
    if kind == "literal_error":
        return f"must be {_one_of(context['expected'])}"
    text = str(fault["msg"]).removeprefix("Value error, ").replace(" after validation", "")
    return _OPENING.sub("must ", text).rstrip(".")


def _is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number that is too large for one: parsers read those as floats."""
    return isinstance(value, float) and value.is_integer() and abs(value) >= _INT64


def _tags(context: Mapping[str, Any]) -> str:
    return str(context.get("expected_tags") or ", ".join(f"'{kind}'" for kind in _KINDS))


def _one_of(expected: str) -> str:
    plain = expected.replace("True", "true").replace("False", "false")
    return f"one of {plain}" if " or " in plain else plain


def path_of(location: Sequence[str | int]) -> str:
    """Return a fault's path as the caller wrote it: ``documents[0].text``."""
    parts = [
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for place, part in enumerate(location)
        if part != "[key]" and not (place and part in _KINDS and location[place - 1] in _FORMATS)
    ]
    return "".join(parts).removeprefix(".")
