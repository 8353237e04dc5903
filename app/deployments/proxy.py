"""What Serve's HTTP proxy, which runs on each node, wraps around itself. Imported by every proxy: it stays light."""

from __future__ import annotations

import logging

from starlette.middleware import Middleware

from app.api.proxy_errors import ProxyErrorMiddleware
from app.api.request_ids import RequestIdMiddleware

#: How long a request waits for a replica of the gateway: longer than a replica takes to be replaced.
WAIT_SECONDS = 60.0

_log = logging.getLogger("ray.serve.baton.proxy")


def middlewares(wait_seconds: float = WAIT_SECONDS) -> list[Middleware]:
    """Return the proxy's middlewares, the innermost first (``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH``)."""
    return [
        Middleware(ProxyErrorMiddleware, give_up=drop_unless_assigned, wait_seconds=wait_seconds),
        Middleware(RequestIdMiddleware),
    ]


def drop_unless_assigned() -> bool:
    """Drop the request of this context if no replica has accepted it yet; return whether it was dropped.

    What a replica has accepted is its own to answer, even one that is being replaced and is in no list any more: so the
    rule goes by what waits, not by how many replicas there are. Ray offers no public way to either.
    """
    from ray.serve import context

    request = context._get_serve_request_context()._internal_request_id
    waiting = tuple(context._get_requests_pending_assignment(request).values())
    if waiting:  # Serve's own line about it will say that the client hung up
        _log.warning("No replica of the gateway took the request in time.")
    for task in waiting:
        task.get_loop().call_soon_threadsafe(task.cancel)
    return bool(waiting)
