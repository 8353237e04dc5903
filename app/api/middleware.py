"""Pure ASGI middleware: request ids, the access log, the last resort for errors, origins, and the limits on bodies."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import time
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.context import CLIENT_CLOSED_REQUEST, Facts, Observe, Observed, facts_of, outcome_of
from app.api.error_handlers import error_response
from app.api.hangup import ClientGone
from app.api.request_ids import REQUEST_ID, fit_request_id
from app.config.gateway import LimitsConfig
from app.errors import CrossOrigin, InvalidRequest, PayloadTooLarge, RequestTimeout, bounded
from app.keys.meter import RATE_LIMIT_HEADERS
from app.logs import logger
from app.traces import NO_SPAN, Span, Traces

_log = logger("gateway")
#: Probes and the page's files: a trace of each would hide those of requests.
#: Names the variant that answered.
VARIANT = "x-baton-variant"
_UNTRACED = ("/healthz", "/readyz", "/static/")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CORS: dict[str, Any] = {
    "allow_methods": ("*",),
    "allow_headers": ("*",),
    "allow_private_network": True,
    "expose_headers": (REQUEST_ID, "retry-after", "traceparent", VARIANT, *RATE_LIMIT_HEADERS),
}
_DRAINED_BYTES = 64 * 1024 * 1024
_DRAINING_SECONDS = 5.0


class RequestMiddleware:
    """Names each request, answers what nobody else answered, and reports how it ended.

    ``behind_proxy``: Serve's proxy writes the request id into the reply, and must be the only one that does.
    """

    def __init__(self, app: ASGIApp, observe: Observe, traces: Traces, behind_proxy: bool) -> None:
        self.app = app
        self.observe = observe
        self.traces = traces
        self.behind_proxy = behind_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        with self._span(scope, headers) as span:
            facts = Facts(fit_request_id(headers), span.trace_id or _callers_trace(headers))
            scope["state"] = {**scope.get("state", {}), "facts": facts}
            began = time.perf_counter()
            try:
                await self._answer(scope, receive, self._reply(send, facts, span))
            except asyncio.CancelledError:
                facts.outcome = CLIENT_CLOSED_REQUEST
                raise
            finally:
                self._report(scope, facts, time.perf_counter() - began, span)

    def _span(self, scope: Scope, headers: Headers) -> Span:
        if not self.traces.on or scope["path"].startswith(_UNTRACED):
            return NO_SPAN
        return self.traces.request(scope["method"], headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts: Facts = scope["state"]["facts"]
        try:
            await self.app(scope, receive, send)
        except ClientGone:
            facts.outcome = CLIENT_CLOSED_REQUEST
        except Exception as error:
            response = error_response(error, scope)
            if facts.sent_status is not None:
                # Too late for a status: a connection that breaks off is all that is left to tell the caller.
                raise
            await response(scope, receive, send)

    def _reply(self, send: Send, facts: Facts, span: Span) -> Send:
        extra = [(b"x-content-type-options", b"nosniff")]
        if span.traceparent:
            extra.append((b"traceparent", span.traceparent.encode()))
        if not self.behind_proxy:
            extra.append((REQUEST_ID.encode(), facts.request_id.encode()))

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                facts.sent_status = message["status"]
                variant = [(VARIANT.encode(), facts.variant.encode())] if facts.variant else []
                message = {**message, "headers": [*message.get("headers", []), *extra, *variant]}
            try:
                await send(message)
            except OSError as error:
                # How some servers tell that the caller hung up.
                raise ClientGone from error

        return reply

    def _report(self, scope: Scope, facts: Facts, seconds: float, span: Span) -> None:
        route = str(getattr(scope.get("route"), "path", "unmatched"))
        status, outcome = facts.status, outcome_of(facts.status, facts.code, facts.own_deadline)
        seen = Observed(route, status, facts.profile, facts.priority, outcome, seconds, facts.variant)
        _log_access(scope["method"], facts, seen)
        self.observe(seen)
        if span is not NO_SPAN:
            _note(span, scope["method"], facts, seen)


def _log_access(method: str, facts: Facts, seen: Observed) -> None:
    milliseconds, key = round(seen.seconds * 1000, 1), facts.key_id or ""
    answering = f"{seen.profile} variant={seen.variant}" if seen.variant else seen.profile
    _log.info(
        "%s %s %d %.1f ms profile=%s key=%s request_id=%s trace_id=%s",
        *(method, seen.route, seen.status, milliseconds, answering, key, facts.request_id, facts.trace_id),
        extra={
            "method": method,
            "route": seen.route,
            "status": seen.status,
            "outcome": seen.outcome,
            "milliseconds": milliseconds,
            "profile": seen.profile,
            "variant": seen.variant,
            "priority": seen.priority,
            "key": key,
            "request_id": facts.request_id,
            "trace_id": facts.trace_id,
        },
    )


def _note(span: Span, method: str, facts: Facts, seen: Observed) -> None:
    """Write on the request's span how it ended, under OpenTelemetry's names for HTTP where there are some."""
    span.rename(f"{method} {seen.route}")
    span.set(
        http__request__method=method,
        http__route=seen.route,
        http__response__status_code=seen.status,
        baton__request__id=facts.request_id,
        baton__outcome=seen.outcome,
        baton__profile=seen.profile or None,
        baton__variant=seen.variant or None,
        baton__priority=seen.priority or None,
    )
    if seen.status >= 400:
        span.fail(facts.code or str(seen.status), ours=seen.status >= 500)


def _callers_trace(headers: Headers) -> str:
    sent = headers.get("traceparent", "")
    return sent[3:35] if _TRACEPARENT.fullmatch(sent) else ""


class OriginMiddleware:
    """Keeps web pages of other sites from using the gateway through their readers' browsers.

    A browser sends what a page asks for with its user's reach, to localhost and into private networks, and without a
    question where the request is a plain one. What is neither GET, HEAD nor OPTIONS is therefore refused from other
    sites, unless they are allowed; the answers to those that are carry what browsers ask for (CORS). A site that lets
    its own name lead to us (DNS rebinding) is told by that name, where the names are configured.
    """

    def __init__(self, app: ASGIApp, limits: Callable[[], LimitsConfig]) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection. Raises CrossOrigin before the body is read."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        limits = self.limits()
        if origin in (allowed := limits.allowed_origins):
            await CORSMiddleware(self._answered, allowed, **_CORS)(scope, receive, send)
            return
        if scope["method"] not in _SAFE_METHODS and _is_foreign(headers, origin):
            named = f", {bounded(origin)}" if origin else ""
            raise CrossOrigin(
                f"This request comes from a web page of another site{named}: to let its pages in, add its origin to "
                "limits.allowedOrigins."
            )
        if scope["method"] not in _SAFE_METHODS and origin and not _is_ours(host := _hostname(headers), limits):
            raise CrossOrigin(
                f"A web page asks for this under a name that is not among this gateway's, {bounded(host)}: to let it "
                "in, add the name to limits.allowedHosts."
            )
        await self.app(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, errors included: a page cannot read one whose headers come from further out."""
        try:
            await self.app(scope, receive, send)
        except ClientGone:
            raise
        except Exception as error:
            if facts_of(scope).sent_status is not None:
                raise
            await error_response(error, scope)(scope, receive, send)


def _is_foreign(headers: Headers, origin: str) -> bool:
    """Tell whether a browser says that a page of another site asks; what is no browser says nothing."""
    site = headers.get("sec-fetch-site", "")
    if site or not origin:
        return site not in ("", "same-origin", "none")
    # Older browsers, and all of them at a plain http address: there is but the origin. A proxy may have put its own
    # name for us into Host, and a page cannot write X-Forwarded-Host without being asked for leave first.
    hosts = [headers.get("host", ""), *headers.get("x-forwarded-host", "").split(",")]
    return origin.partition("://")[2].lower() not in {host.strip().lower() for host in hosts} - {""}


def _hostname(headers: Headers) -> str:
    """Return what stands in Host without its port. X-Forwarded-Host tells nothing: a rebound page may write it."""
    host = headers.get("host", "").strip().lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name.removesuffix(".")


def _is_ours(host: str, limits: LimitsConfig) -> bool:
    if not limits.allowed_hosts or host in limits.allowed_hosts:
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host.strip("[]")))
    return False


def no_upload(path: str) -> int:
    """Tell that no path takes more than the limit of all bodies."""
    del path
    return 0


class BodyLimitMiddleware:
    """Refuses bodies over the limits.

    Too large: at once when the length is announced, else as soon as too much has come in. Too slow: when the time for
    the whole body is over. ``upload_bytes`` tells how much a path takes that may take more than others.
    """

    def __init__(
        self, app: ASGIApp, limits: Callable[[], LimitsConfig], upload_bytes: Callable[[str], int] = no_upload
    ) -> None:
        self.app = app
        self.limits = limits
        self.upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limits = self.limits()
        limit = max(limits.max_body_bytes, self.upload_bytes(scope["path"]))
        lingering = _lingering(receive, send)
        if _announced(Headers(scope=scope)) > limit:
            await error_response(_too_large(limit), scope)(scope, receive, lingering)
        else:
            try:
                await self.app(scope, _timed(_counted(receive, limit), limits.body_timeout_seconds), lingering)
            except ClientDisconnect:  # in the middle of the body: no fault of ours
                raise ClientGone from None


def _announced(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise InvalidRequest("The header Content-Length is not a number.")
    return int(length[:20])


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is over the limit of {limit} bytes.")


def _counted(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise _too_large(limit)
        return message

    return counted


def _timed(receive: Receive, seconds: float) -> Receive:
    """Return ``receive`` that waits for the body as long as it may take, and for anything after it without a limit."""
    deadline: float | None = None
    complete = False

    async def timed() -> Message:
        nonlocal deadline, complete
        if complete:
            return await receive()
        # From the first time that somebody asks: a caller is not to blame for what we did before.
        deadline = deadline or asyncio.get_running_loop().time() + seconds
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                message = await receive()
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(f"The request body did not come within {seconds:g} seconds: send it again.") from None
        complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return timed


def _lingering(receive: Receive, send: Send) -> Send:
    """Return ``send`` that, after a 413, reads on before it ends the reply.

    A server closes a connection whose request was not read; many clients write the whole body before they read, and
    would see a broken pipe in place of the 413.
    """
    refused = False

    async def sending(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start":
            refused = message["status"] == PayloadTooLarge.status
        elif refused and not message.get("more_body", False):
            await send({**message, "more_body": True})
            await _drain(receive)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return sending


async def _drain(receive: Receive) -> None:
    left = _DRAINED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAINING_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body", False):
                    return
                left -= len(message["body"])
