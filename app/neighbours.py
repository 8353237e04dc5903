"""The applications beside the pipeline, such as ``analyze``, as the gateway's RPCs ask them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app.errors import NotFound

#: Asks the application of a name with a request, until a ``time.monotonic()`` instant. Raises errors of ``app.errors``.
AskApplication = Callable[[str, Mapping[str, Any], float], Awaitable[Mapping[str, Any]]]


def not_deployed(name: str) -> NotFound:
    """Return the error for an application that is not there."""
    return NotFound(f"The application {name!r} is not deployed: ask the operator to turn it on.")
