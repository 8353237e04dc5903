"""What every request handler may reach: the pipeline, the settings in force, and the facts of the request at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from starlette.types import Scope

from app.config.gateway import GatewayConfig, LimitsConfig
from app.errors import DeadlineExceeded, GuardrailBlocked, Overloaded
from app.jobs import PipelinePort
from app.keys.meter import UNMETERED, Meter
from app.keys.rights import ALL, Rights

Outcome = Literal["answered", "blocked", "refused", "cancelled", "shed", "timeout", "own_deadline", "failed"]
CLIENT_CLOSED_REQUEST = 499
_OUTCOMES: dict[str, Outcome] = {
    GuardrailBlocked.code: "blocked",
    Overloaded.code: "shed",
    DeadlineExceeded.code: "timeout",
}


@dataclass(frozen=True, slots=True)
class Observed:
    """How a request ended.

    ``route`` is its template (``/v1/chat/completions``, or ``unmatched``). The status is the one sent, except for what
    a 200 hides: 499 when the caller hung up, and the error's own status when a stream failed after its first byte.
    ``profile``, ``variant`` and ``priority`` are empty where none was resolved.
    """

    route: str
    status: int
    profile: str
    priority: str
    outcome: Outcome
    seconds: float
    variant: str = ""


#: Called once at the end of every request.
Observe = Callable[[Observed], None]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The API's surroundings. ``port`` and ``settings`` are called per request, since both may change live."""

    port: Callable[[], PipelinePort]
    settings: Callable[[], GatewayConfig]


@dataclass(slots=True)
class Facts:
    """What is known about the request at hand, filled in on its way through."""

    request_id: str
    trace_id: str = ""
    """The trace that the request belongs to: ours, or else the caller's."""
    profile: str = ""
    variant: str = ""
    priority: str = ""
    key_id: str | None = None
    """The id of the API key that came with the request, where there are keys."""
    own_deadline: bool = False
    """Whether the request has less time than by default, as its caller wants it."""
    code: str = ""
    """Our code of the error that ended the request."""
    sent_status: int | None = None
    rights: Rights = ALL
    """What the key may do."""
    stranger: bool = False
    """Whether keys are asked for, and the request came to an open route without a valid one."""
    meter: Meter = UNMETERED
    """What the key has used."""
    outcome: int | None = None
    """The status to report in place of the sent one."""

    @property
    def status(self) -> int:
        """The status to report."""
        return self.outcome or self.sent_status or 500


def outcome_of(status: int, code: str, own_deadline: bool = False) -> Outcome:
    """Return the class of a request's end, from its status, our error's code and whose deadline it had."""
    if status < 400:
        return "answered"
    if status == CLIENT_CLOSED_REQUEST:
        return "cancelled"
    found = _OUTCOMES.get(code)
    if found == "timeout" and own_deadline:
        return "own_deadline"
    return found or ("refused" if status < 500 else "failed")


def gateway(request: Request) -> Gateway:
    """Return the gateway that this request came to."""
    found: Gateway = request.app.state.gateway
    return found


def limits_of(request: Request) -> LimitsConfig:
    """Return the limits in force; every application that answers over HTTP has some."""
    found: LimitsConfig = request.app.state.limits()
    return found


def facts_of(scope: Scope) -> Facts:
    """Return the facts of the request with this scope."""
    found: Facts = scope["state"]["facts"]
    return found
