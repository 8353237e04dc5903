"""Ends the wait for a stage whose deployment was removed.

That happens while a stage moves into the gateway: the old gateways still call it when it is gone. Serve fails the calls
that are made after the deployment's last replica has ended; one that waits for a replica already would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.errors import StageUnavailable

#: How long a call waits for a replica before anybody asks whether there will be one.
_PATIENCE_SECONDS = 1.0
_RETRY_SECONDS = 5


#: Tells whether a stage's deployment was removed; raises nothing.
Gone = Callable[[], Awaitable[bool]]


async def never() -> bool:
    """Say that a stage is there."""
    return False


class Absence:
    """Watches calls to one stage."""

    def __init__(self, stage: str, gone: Gone) -> None:
        self._stage = stage
        self._gone = gone

    @asynccontextmanager
    async def watching(self, response: Any) -> AsyncIterator[None]:
        """Raise :class:`StageUnavailable` out of the block, and cancel the call, once nobody will ever take it.

        It costs a call that is taken in time 4 us.
        """
        try:
            async with asyncio.timeout(None) as wait:
                watch = _Watch(lambda: self._until_gone(response, wait))
                try:
                    yield
                finally:
                    watch.over()
        except TimeoutError:
            if not wait.expired():
                raise
            with contextlib.suppress(Exception):
                response.cancel()
            raise StageUnavailable(
                f"The {self._stage} is moving to another place; try again shortly.", self._stage, None, _RETRY_SECONDS
            ) from None

    async def _until_gone(self, response: Any, wait: asyncio.Timeout) -> None:
        while not _taken(response):
            if await self._gone():
                wait.reschedule(asyncio.get_running_loop().time())
                return
            await asyncio.sleep(_PATIENCE_SECONDS)


class _Watch:
    """Starts ``work`` as a task when the patience is over; most calls end before."""

    __slots__ = ("_task", "_timer", "_work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._work())

    def over(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def _taken(response: Any) -> bool:
    """Tell whether a replica has taken the call, and will answer it however long it takes. Ray has no public way."""
    taking = getattr(response, "_replica_result_future", None)
    return taking is not None and bool(taking.done())
