"""A deadline over many short waits: one timer in all, where ``asyncio.timeout`` takes one per wait, so per token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from app.errors import DeadlineExceeded, deadline_passed

T = TypeVar("T")


class Deadline:
    """Ends whatever is waited for through it at ``at``, a ``time.monotonic()`` instant. Close it when done."""

    def __init__(self, at: float, stage: str) -> None:
        self._stage = stage
        self._passed = False
        self._struck = False
        self._task: asyncio.Task[Any] | None = None
        self._timer = asyncio.get_running_loop().call_at(at, self._pass)

    def _pass(self) -> None:
        self._passed = True
        if self._task is not None:
            self._struck = True
            self._task.cancel()

    async def next_of(self, items: AsyncIterator[T]) -> T | None:
        """Return the next item, None at the end. Raises :class:`DeadlineExceeded`, with the wait cancelled."""
        if self._passed:
            raise self._error()
        return await self.result_of(anext(items, None))

    async def result_of(self, work: Awaitable[T]) -> T:
        """Return what ``work`` returns. Raises :class:`DeadlineExceeded`, with the work cancelled or not begun.

        One wait at a time goes through a deadline.
        """
        if self._passed:
            if isinstance(work, Coroutine):
                work.close()
            raise self._error()
        task = self._task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_ours(before):
                raise self._error() from None
            raise
        finally:
            self._task = None

    def _is_ours(self, before: int) -> bool:
        # As in `asyncio.timeout`: somebody else may have cancelled the task at the same time, and goes first.
        return self._struck and self._task is not None and self._task.uncancel() <= before

    def _error(self) -> DeadlineExceeded:
        return deadline_passed(self._stage)

    def close(self) -> None:
        """Drop the timer."""
        self._timer.cancel()
