"""Long work in threads that ends soon after nobody waits for it any more.

A thread cannot be cancelled. Whoever runs the work in one sets a flag when its own task is cancelled, by a hang-up or a
deadline, and the work looks at the flag between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

from app.errors import DeadlineExceeded

T = TypeVar("T")

_stop: ContextVar[threading.Event | None] = ContextVar("baton_stop", default=None)


def stoppable(work: Callable[..., T], *arguments: Any) -> tuple[Callable[[], T], Callable[[], None]]:
    """Return ``work`` as a call for another thread, in this one's context, and what tells it to stop."""
    stop, context = threading.Event(), copy_context()
    context.run(_stop.set, stop)
    return partial(context.run, work, *arguments), stop.set


def check_wanted(stage: str) -> None:
    """Raise :class:`DeadlineExceeded`, which nobody reads any more, where the work was told to stop."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise DeadlineExceeded("Nobody waits for this any more.", stage)
