"""The one place where errors become HTTP. Every error leaves in OpenAI's shape."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from app.api.context import facts_of, limits_of
from app.api.suggestions import Model, meant
from app.errors import (
    BatonError,
    ConfigError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ServerError,
    bounded,
)
from app.faults import path_of, sentence_of
from app.logs import logger

_log = logger("gateway")
_MESSAGE_CHARS = 300
#: How many faults of one request are told in full.
_TOLD = 3


def install_error_handlers(app: FastAPI) -> None:
    """Answer the errors that routes and the router raise; :class:`RequestMiddleware` answers all others."""
    for kind in (BatonError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope)


def error_response(error: Exception, scope: Scope) -> Response:
    """Return the response for any error, and log the faults that are ours."""
    known = as_error(error, scope)
    facts_of(scope).code = known.code
    headers = known.headers()
    if known.status == 503 and not headers:
        headers["Retry-After"] = str(limits_of(Request(scope)).retry_after_seconds)
    if isinstance(error, HTTPException) and error.headers and "Allow" in error.headers:
        headers["Allow"] = error.headers["Allow"]
    return Response(orjson.dumps(known.body()), known.status, headers, "application/json")


def as_error(error: Exception, scope: Scope) -> BatonError:
    """Return ``error`` as one of ours. A fault of ours is logged (where it happened, never its text)."""
    if isinstance(error, BatonError) and not isinstance(error, ConfigError):
        if isinstance(error, ServerError):
            facts = facts_of(scope)
            said = {"error_type": error.code, "stage": error.stage, "trace_id": facts.trace_id}
            _log.warning("%s in stage %s: request_id=%s", error.code, error.stage, facts.request_id, extra=said)
        return error
    if isinstance(error, RequestValidationError):
        faults = error.errors()
        return describe_faults(faults, skip=1, model=_read_model(scope, faults[0]))
    if isinstance(error, ValidationError):
        return describe_faults(error.errors(include_url=False))
    if isinstance(error, HTTPException):
        return _routing_error(error, scope)
    request_id = facts_of(scope).request_id
    _log.error("unexpected %s: request_id=%s\n%s", type(error).__name__, request_id, _where(error))
    return InternalError(f"Something broke on our side; the log tells more under request id {request_id}.")


def _where(error: BaseException) -> str:
    """Return the places of a traceback. The exception's own text is left out: it may quote a prompt."""
    return "".join(traceback.format_tb(error.__traceback__))


def _routing_error(error: HTTPException, scope: Scope) -> BatonError:
    if error.status_code == 405:
        return MethodNotAllowed(f"{bounded(scope['method'], 20)} is not allowed at {bounded(scope['path'])}.")
    return NotFound(f"There is nothing at {bounded(scope['path'])}.")


def _read_model(scope: Scope, fault: Mapping[str, Any]) -> Model | None:
    """Return the model of the body or the query that a fault is in; None where it was read without one."""
    route, place = scope.get("route"), fault["loc"][0]
    if not isinstance(route, APIRoute):
        return None
    read: Mapping[str, Sequence[Any]] = {"body": [route.body_field], "query": route.dependant.query_params}
    fields = read.get(place, [])
    kinds = [field.field_info.annotation for field in fields if field is not None]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def describe_faults(
    faults: Sequence[Any], skip: int = 0, model: Model | None = None, where: str = ""
) -> InvalidRequest:
    """Return the first faults of a pydantic error as sentences that name the field, without the value.

    ``skip`` is the number of leading parts of the path that are not the caller's (FastAPI's ``body``); ``model`` is
    what was read, to tell which field was meant by an unknown one; ``where`` stands before the sentences.
    """
    told = [_told(fault, fault["loc"][skip:], model) for fault in faults[:_TOLD]]
    left = len(faults) - len(told)
    if left:
        told.append(f"({left} more {'fault' if left == 1 else 'faults'}.)")
    field = _field(faults[0]["loc"][skip:])
    return InvalidRequest(where + " ".join(dict.fromkeys(told)), param=field or None)


def _field(location: Sequence[str | int]) -> str:
    return path_of(location)[:_MESSAGE_CHARS]


def _told(fault: Mapping[str, Any], location: Sequence[str | int], model: Model | None) -> str:
    field = _field(location)
    if fault["type"] == "extra_forbidden":
        paths = [bounded(path) for path in (meant(model, location) if model else ())]
        return f"Unknown field {bounded(field)}{': did you mean ' + ' or '.join(paths) + '?' if paths else '.'}"
    text = sentence_of(fault)[:_MESSAGE_CHARS]
    return f"{field}: {text}." if field else f"{text}."
