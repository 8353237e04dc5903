"""What every request handler may reach: the pipeline, the settings in force, and the facts of the request at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.types import Scope

from app.config.gateway import GatewayConfig, LimitsConfig
from app.jobs import PipelinePort

#: Called once at the end of every request with the route's template (``/v1/chat/completions``, or ``unmatched``), the
#: status and the profile (empty where none was resolved). The status is the one sent, except for what a 200 hides: 499
#: when the caller hung up, and the error's own status when a stream failed after its first byte.
Observe = Callable[[str, int, str], None]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The API's surroundings. ``port`` and ``settings`` are called per request, since both may change live."""

    port: Callable[[], PipelinePort]
    settings: Callable[[], GatewayConfig]


@dataclass(slots=True)
class Facts:
    """What is known about the request at hand, filled in on its way through."""

    request_id: str
    traceparent: str
    profile: str = ""
    sent_status: int | None = None
    outcome: int | None = None
    """The status to report in place of the sent one."""


def gateway(request: Request) -> Gateway:
    """Return the gateway that this request came to."""
    found: Gateway = request.app.state.gateway
    return found


def limits_of(request: Request) -> LimitsConfig:
    """Return the limits in force."""
    return gateway(request).settings().limits


def facts_of(scope: Scope) -> Facts:
    """Return the facts of the request with this scope."""
    found: Facts = scope["state"]["facts"]
    return found
