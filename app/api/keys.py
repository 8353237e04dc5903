"""Pure ASGI middleware that closes the gateway to requests without an API key."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.context import facts_of
from app.errors import Unauthenticated
from app.keys.meter import Meter
from app.keys.ring import Grant, Keys

#: What stays open: probes, and the page that asks for a key, with its files. They show strangers nothing.
_OPEN = frozenset({"/healthz", "/readyz", "/"})
_OPEN_FOLDER = "/static/"
_LONGEST_SECRET = 256
#: Where the scope of a request that this process makes for itself (a batch's row) holds what its key may do. What comes
#: in over a socket cannot bring it.
GRANT = "baton.grant"


class KeyMiddleware:
    """Lets requests with a valid key in and notes what it may do; all others are refused with 401.

    It stands inside of the origins, which answer a browser's question beforehand (that carries no key), and outside of
    everything that reads a body.
    """

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection. Raises Unauthenticated and RateLimitExceeded before the body is read."""
        if scope["type"] != "http" or not self.keys.on:
            await self.app(scope, receive, send)
            return
        facts = facts_of(scope)
        if _is_open(scope["path"]):
            # Probes have no key and are answered; what they are told is no stranger's business.
            try:
                facts.rights = self._grant(scope).rights
            except Unauthenticated:
                facts.stranger = True
            await self.app(scope, receive, send)
            return
        grant = self._grant(scope)
        facts.key_id, facts.rights, facts.meter = grant.key_id, grant.rights, grant.meter
        with grant.meter.at_work():
            await self.app(scope, receive, _told(send, grant.meter))

    def _grant(self, scope: Scope) -> Grant:
        found: Grant = scope.get(GRANT) or self.keys.grant(_secret(Headers(scope=scope)))
        return found


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def _secret(headers: Headers) -> str:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret or len(secret) > _LONGEST_SECRET:
        raise Unauthenticated("This gateway asks for an API key: send it in the header Authorization: Bearer …")
    return secret


def _told(send: Send, meter: Meter) -> Send:
    """Return ``send`` that adds where the key stands to the reply's headers."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *meter.headers()]}
        await send(message)

    return told
