"""JSON pointers (RFC 6901), as texts and as fragments of a reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

_MAX_CHARS = 200


def pointer(path: Iterable[str | int]) -> str:
    """Return the pointer of a path, cut to 200 characters; the whole document is ``""``."""
    text = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def resolve(document: Any, fragment: str) -> Any:
    """Return what ``#…`` points to. Raises LookupError when nothing is there."""
    node = document
    for part in unquote(fragment[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdigit():
            node = node[int(key)]
        elif isinstance(node, dict):
            node = node[key]
        else:
            raise LookupError(key)
    return node
