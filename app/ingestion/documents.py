"""What a document is, and the limits it is held to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.blank import is_blank
from app.errors import InvalidRequest, bounded
from app.stores.contract import Scalar
from app.stores.filters import JOINERS, MAX_KEY_CHARS, MAX_NUMBER, MAX_TEXT_CHARS, RESERVED_ID, RESERVED_KEY

MAX_TEXT_BYTES = 8 * 2**20
MAX_ID_CHARS = 256
MAX_SOURCE_CHARS = 1024
MAX_METADATA_KEYS = 64
_FIELDS = frozenset({"id", "text", "title", "source", "metadata"})


@dataclass(frozen=True, slots=True)
class Document:
    """One document, checked. ``metadata`` holds texts, numbers within bounds and booleans, never None."""

    id: str
    text: str
    title: str
    source: str
    metadata: Mapping[str, Scalar]

    def content_hash(self, salt: str) -> str:
        """Return 32 hex digits over the content and ``salt`` (how it is cut and embedded)."""
        content = [salt, self.text, self.title, self.source, dict(self.metadata)]
        return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def parse_document(raw: Any, where: str) -> Document:
    """Return the document of ``{"id"?, "text", "title"?, "source"?, "metadata"?}``.

    Further keys that hold scalars become metadata. Without an id, the text's hash is the id, so that the same text is
    stored once. ``where`` names the place in the error's sentence. Raises InvalidRequest.
    """
    if not isinstance(raw, Mapping):
        raise _fault(where, "must be an object with a text")
    text = _text(raw, "text", MAX_TEXT_BYTES, where)
    if is_blank(text):
        raise _fault(f"{where}.text", "is missing or blank")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise _fault(f"{where}.text", f"is larger than {MAX_TEXT_BYTES // 2**20} MiB: split the document")
    return Document(
        id=_id(raw, text, where),
        text=text,
        title=_text(raw, "title", MAX_SOURCE_CHARS, where).strip(),
        source=_text(raw, "source", MAX_SOURCE_CHARS, where),
        metadata=_metadata(raw, where),
    )


def check_ids(documents: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
    """Refuse documents of one id and other content, of which only one would be stored; equal ones are let pass.

    ``places`` names where each document stands. Raises InvalidRequest naming both places.
    """
    seen: dict[str, int] = {}
    for index, document in enumerate(documents):
        given = document.get("id")
        first = seen.setdefault(given or text_id(document["text"]), index)
        if first == index or _content(document) == _content(documents[first]):
            continue
        shared = f"the id {bounded(given)}" if given else "the text"
        raise InvalidRequest(
            f"{places[index]} has {shared} of {places[first]} and other content: give each document an id of its own.",
            param="documents",
        )


def text_id(text: str) -> str:
    """Return the id of a document that brings none: the same text has the same id."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _content(document: Mapping[str, Any]) -> bytes:
    content = [document.get(field) or None for field in ("text", "title", "source", "metadata")]
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def id_text(given: Any) -> str:
    """Return a document's id as text: 1 to 256 printable characters, or a whole number. Raises ValueError."""
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) <= MAX_NUMBER:
        given = str(given)
    if not isinstance(given, str) or not 0 < len(given) <= MAX_ID_CHARS or not given.isprintable():
        raise ValueError(f"must be 1 to {MAX_ID_CHARS} printable characters, or a whole number of at most 2^53")
    return given


def _id(raw: Mapping[str, Any], text: str, where: str) -> str:
    given = raw.get("id")
    if given is None:
        return text_id(text)
    try:
        found = id_text(given)
    except ValueError as error:
        raise _fault(f"{where}.id", str(error)) from None
    if found.startswith(RESERVED_ID):
        raise _fault(f"{where}.id", f"begins with {RESERVED_ID}, as ids of tenants' documents do: choose another one")
    return found


def _text(raw: Mapping[str, Any], key: str, limit: int, where: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _fault(f"{where}.{key}", "must be text")
    return _clean(value, limit, f"{where}.{key}")


def _clean(value: str, limit: int, where: str) -> str:
    """Refuse what one of the stores could not keep."""
    if len(value) > limit:
        raise _fault(where, f"is longer than {limit} characters")
    if "\0" in value:
        raise _fault(where, "holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _fault(where, "holds half a surrogate pair, which is not text") from None
    return value


def _metadata(raw: Mapping[str, Any], where: str) -> dict[str, Scalar]:
    given = raw.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise _fault(f"{where}.metadata", "must be an object")
    extra = {key: value for key, value in raw.items() if key not in _FIELDS and not isinstance(value, dict | list)}
    merged = {key: value for key, value in {**extra, **given}.items() if value is not None}
    if len(merged) > MAX_METADATA_KEYS:
        raise _fault(f"{where}.metadata", f"has more than {MAX_METADATA_KEYS} keys")
    return {_key(key, where): _scalar(value, f"{where}.metadata.{bounded(key)}") for key, value in merged.items()}


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
        raise _fault(f"{where}.metadata", f"has a key that is not 1 to {MAX_KEY_CHARS} printable characters")
    if key == RESERVED_KEY:
        raise _fault(f"{where}.metadata", f"has the reserved key {key}: it follows from the API key")
    if key in JOINERS:
        raise _fault(f"{where}.metadata", f"has the key '{key}', with which filters are joined: give it another name")
    return key


def _scalar(value: Any, where: str) -> Scalar:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _clean(value, MAX_TEXT_CHARS, where)
    if isinstance(value, int | float) and abs(value) <= MAX_NUMBER:  # not so with NaN either
        return value
    raise _fault(where, "must be text, true, false, or a number from -2^53 to 2^53")


def _fault(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where} {what}.", stage="retriever", param="documents")
