"""Work that ends when its caller hangs up or its deadline passes, with everything it held released."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from app.errors import deadline_passed

T = TypeVar("T")

#: The pipeline watches the same deadline and names the stage in its error; the gateway's own watch is the backstop.
_GRACE_SECONDS = 0.25


class ClientGone(Exception):
    """The caller hung up: no fault, and nobody is left to answer."""


async def run_unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in a task of its own and return its result.

    The task is cancelled, and awaited until it has cleaned up, when the caller hangs up (then ``ClientGone`` is raised)
    or when this coroutine is cancelled. The request's body must have been read before.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        watch.result()
        raise ClientGone
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:  # a server whose own task for the request was cancelled says so by raising (Ray Serve's proxy)
        return


@asynccontextmanager
async def closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the iterator on every way out, so that all stages behind it stop."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


@asynccontextmanager
async def within(deadline: float) -> AsyncIterator[None]:
    """Raise ``DeadlineExceeded`` in the body when the ``time.monotonic()`` instant ``deadline`` has passed."""
    remaining = max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS
    limit = asyncio.timeout(remaining)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise deadline_passed() from None
