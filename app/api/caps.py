"""Checks of a request against the limits in force. Each refusal names the field and the limit."""

from __future__ import annotations

import time

from app.api.fields import ExtensionFields, SamplingFields
from app.api.priorities import Priority
from app.api.resolution import Target
from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest


def at_most(field: str, value: int | None, limit: int) -> None:
    """Refuse a value over its limit."""
    if value is not None and value > limit:
        raise InvalidRequest(f"{field} is {value}, over the limit of {limit}.", param=field)


def holds_at_most(field: str, count: int, limit: int, what: str) -> None:
    """Refuse a list of more than ``limit`` of ``what`` (a plural)."""
    if count > limit:
        raise InvalidRequest(f"{field} holds {count} {what}, over the limit of {limit}.", param=field)


def check_stop(stop: list[str] | None, limits: LimitsConfig) -> None:
    """Refuse too many, empty and over-long stop texts."""
    holds_at_most("stop", len(stop or ()), limits.max_stop, "sequences")
    for text in stop or ():
        if not 1 <= len(text) <= limits.max_stop_chars:
            raise InvalidRequest(f"Each stop text has 1 to {limits.max_stop_chars} characters.", param="stop")


def answer_tokens(body: SamplingFields, asked: int | None, target: Target, limits: LimitsConfig) -> int | None:
    """Return the answer's length: as asked, else the profile's, else None for what is left of the window.

    Refuses lengths over the model's window or a limit, the profile's included, and a minimum over the maximum.
    """
    window, own = target.info.context_tokens, target.profile.limits
    ceiling = min(limits.max_tokens, window, own.max_tokens or window, own.context_tokens or window)
    at_most("max_tokens", asked, ceiling)
    default = target.profile.sampling.max_tokens
    if default is None:
        default = own.max_tokens
    chosen = asked if default is None or asked is not None else min(default, ceiling)
    at_most("min_tokens", body.min_tokens, ceiling if chosen is None else chosen)
    return chosen


def candidates_for(body: ExtensionFields, n: int, target: Target, limits: LimitsConfig) -> int:
    """Return how many answers to generate for ``n`` returned ones."""
    at_most("n", n, limits.max_n)
    at_most("n_candidates", body.n_candidates, limits.max_n)
    if body.n_candidates is None:
        return min(n * target.profile.n_candidates, limits.max_n)
    if body.n_candidates < n:
        raise InvalidRequest("n_candidates must not be smaller than n.", param="n_candidates")
    return body.n_candidates


def deadline_for(timeout_seconds: float | None, limits: LimitsConfig, priority: Priority | None = None) -> float:
    """Return the ``time.monotonic()`` instant by which the request must be answered."""
    seconds = _default_seconds(limits, priority) if timeout_seconds is None else timeout_seconds
    if seconds > limits.max_timeout_seconds:
        raise InvalidRequest(
            f"timeout_seconds is over the limit of {limits.max_timeout_seconds:g}.", param="timeout_seconds"
        )
    return time.monotonic() + seconds


def is_own_deadline(timeout_seconds: float | None, limits: LimitsConfig, priority: Priority | None = None) -> bool:
    """Tell whether the caller leaves the request less time than it has by default: that it passes is his doing."""
    return timeout_seconds is not None and timeout_seconds < _default_seconds(limits, priority)


def _default_seconds(limits: LimitsConfig, priority: Priority | None) -> float:
    return (priority and priority.timeout_seconds) or limits.timeout_seconds
