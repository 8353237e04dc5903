"""The one place where errors become HTTP. Every error leaves in OpenAI's shape."""

from __future__ import annotations

import traceback
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from app.api.context import facts_of, limits_of
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
        return describe_faults(error.errors(), skip=1)
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


def describe_faults(faults: Any, skip: int = 0) -> InvalidRequest:
    """Return the first fault of a pydantic error as a sentence that names the field, without the value.

    ``skip`` is the number of leading parts of the path that are not the caller's (FastAPI's ``body``).
    """
    fault = faults[0]
    field = path_of(fault["loc"][skip:])[:_MESSAGE_CHARS]
    if fault["type"] == "extra_forbidden":
        message = f"Unknown field {bounded(field)}."
    else:
        text = sentence_of(fault)[:_MESSAGE_CHARS]
        message = f"{field}: {text}." if field else f"{text}."
    more = f" ({len(faults) - 1} more faults.)" if len(faults) > 1 else ""
    return InvalidRequest(message + more, param=field or None)
