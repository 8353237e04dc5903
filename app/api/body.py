"""Reading request bodies: content type, JSON, nesting. Nothing here knows what the JSON means."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.api.context import limits_of
from app.byte_order import without_mark
from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest, UnsupportedMediaType, bounded

NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_WHOLE = "The request body"


class JsonRequest(Request):
    """A request whose body was read and parsed by :func:`read_json` already."""

    parsed: Any

    async def json(self) -> Any:
        """Return the parsed body."""
        return self.parsed


class JsonRoute(APIRoute):
    """A route that parses its JSON body strictly before FastAPI sees it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, with our reading of the body in front where the route has one."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_then_handle(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            check_json_type(media_type(request))
            strict.parsed = read_object(await strict.body(), limits_of(request))
            return await handle(strict)

        return read_then_handle


def check_json_type(kind: str) -> None:
    """Refuse a body whose media type is not JSON's; none counts as JSON."""
    if kind not in ("", "application/json") and not re.fullmatch(r"[^/]+/[^/]+\+json", kind):
        raise UnsupportedMediaType(f"Content-Type is {bounded(kind)}: send application/json.")


def media_type(request: Request) -> str:
    """Return the body's media type in lower case, or an empty string; refuse other encodings than UTF-8."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not read: send the body without Content-Encoding.")
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    charset = str(header.get_param("charset", "utf-8")).lower()
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"The charset is {bounded(charset)}: send UTF-8.")
    # As it was sent: the parser reads a malformed type as text/plain.
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def read_json(raw: bytes, limits: LimitsConfig, where: str = _WHOLE) -> Any:
    """Parse UTF-8 JSON (no NaN, no lone surrogates) and refuse what is nested too deep or holds too many values."""
    raw = without_mark(raw)
    if not raw.strip():
        raise InvalidRequest(f"{where} is empty: send a JSON object.")
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(_unreadable(error, limits, where)) from None
    _check_shape(parsed, limits, where)
    return parsed


def read_object(raw: bytes, limits: LimitsConfig, where: str = _WHOLE) -> dict[str, Any]:
    """Parse a JSON object with :func:`read_json`."""
    parsed = read_json(raw, limits, where)
    if not isinstance(parsed, dict):
        raise InvalidRequest(f"{where} must be a JSON object.")
    return parsed


def _unreadable(error: orjson.JSONDecodeError, limits: LimitsConfig, where: str) -> str:
    """Return what keeps a body from being read. Some of it is JSON: the parser has limits of its own."""
    if error.msg.startswith("depth limit"):
        return _too_deep(limits, where)
    line = f"line {error.lineno}, " if where == _WHOLE else ""
    fault = "holds a number that is too large" if "infinity" in error.msg else "is not valid UTF-8 JSON"
    return f"{where} {fault} ({line}column {error.colno})."


def _too_deep(limits: LimitsConfig, where: str) -> str:
    return f"{where} is nested deeper than {limits.max_json_depth} levels."


def _check_shape(parsed: Any, limits: LimitsConfig, where: str) -> None:
    level, nodes = [parsed], 0
    for _ in range(limits.max_json_depth + 1):
        level = [value for value in level if isinstance(value, dict | list)]
        nodes += sum(map(len, level))
        if nodes > limits.max_json_nodes:
            raise InvalidRequest(f"{where} holds more than {limits.max_json_nodes} values.")
        if not level:
            return
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    raise InvalidRequest(_too_deep(limits, where))
