"""The request id: the caller's where it is fit to be echoed, else one of ours.

Serve's HTTP proxy appends ``x-request-id`` to every reply, whether one is there or not, with the request's header as it
came or, without one, an id that it makes and hands on in the request. So behind the proxy the gateway leaves the header
to it, and :class:`RequestIdMiddleware` puts a fit id into the request before the proxy reads it.
"""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

REQUEST_ID = "x-request-id"
_FIT = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def fit_request_id(headers: Headers) -> str:
    """Return the caller's request id, or a new one when it is missing, too long or holds odd characters."""
    sent = headers.get(REQUEST_ID, "")
    return sent if _FIT.fullmatch(sent) else f"req-{uuid.uuid4().hex}"


class RequestIdMiddleware:
    """Replaces the request's id by a fit one, so that whoever stands behind reads the same one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] in ("http", "websocket"):
            headers = MutableHeaders(scope=scope)
            headers[REQUEST_ID] = fit_request_id(headers)
        await self.app(scope, receive, send)
