"""Three ways to compose asynchronous steps: one after the other, side by side over one hand-off, and behind a gate.

A step is any ``async`` callable of a value and the request's deadline; what the patterns return is a step again, so
they nest. Each of them ends with :class:`DeadlineExceeded` at the deadline, with whatever is under way cancelled. A
step may carry an attribute ``stage``, the name that its deadline's error tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from app.errors import deadline_passed

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

_NAMELESS = "application"


class Step(Protocol[In, Out]):
    """One step of a composition; ``deadline`` is a ``time.monotonic()`` instant. Cancelling it stops its work."""

    async def __call__(self, value: In, deadline: float, /) -> Out:
        """Return what comes of ``value``; raises errors of ``app.errors``."""
        ...


class Composed(Generic[In, Out]):
    """Steps put together: a step again. Each step inside watches the deadline, so nobody watches this one."""

    def __init__(self, run: Callable[[In, float], Awaitable[Out]]) -> None:
        self._run = run

    async def __call__(self, value: In, deadline: float, /) -> Out:
        """Run the steps."""
        return await self._run(value, deadline)


@overload
def pipeline(first: Step[A, B], second: Step[B, C], /) -> Composed[A, C]: ...
@overload
def pipeline(first: Step[A, B], second: Step[B, C], third: Step[C, D], /) -> Composed[A, D]: ...
@overload
def pipeline(first: Step[A, B], second: Step[B, C], third: Step[C, D], fourth: Step[D, E], /) -> Composed[A, E]: ...
def pipeline(*steps: Step[Any, Any]) -> Composed[Any, Any]:
    """Return a step that hands what each step returns to the next one."""

    async def run(value: Any, deadline: float) -> Any:
        for step in steps:
            value = await _in_time(step, value, deadline)
        return value

    return Composed(run)


@overload
def broadcast(first: Step[A, B], second: Step[A, C], /) -> Composed[A, tuple[B, C]]: ...
@overload
def broadcast(first: Step[A, B], second: Step[A, C], third: Step[A, D], /) -> Composed[A, tuple[B, C, D]]: ...
def broadcast(*branches: Step[Any, Any]) -> Composed[Any, Any]:
    """Return a step that hands one value to all branches at once and returns what they return, in their order.

    When a branch fails the others are cancelled, and the first error is raised once all have stopped.
    """

    async def run(value: Any, deadline: float) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_in_time(branch, value, deadline)) for branch in branches]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    return Composed(run)


def conditional(
    judge: Step[A, B], passes: Callable[[B], bool], then: Step[A, C], otherwise: Callable[[B], D]
) -> Composed[A, C | D]:
    """Return a step that runs ``then`` on the value where its verdict passes, and else returns ``otherwise(verdict)``.

    ``judge`` gives the verdict. Nothing of ``then`` is called where it does not pass.
    """

    async def run(value: A, deadline: float) -> C | D:
        verdict = await _in_time(judge, value, deadline)
        return await _in_time(then, value, deadline) if passes(verdict) else otherwise(verdict)

    return Composed(run)


async def unchanged(value: A, deadline: float, /) -> A:
    """Return the value: the branch of a broadcast that keeps the hand-off itself for what comes after."""
    return value


async def _in_time(step: Step[A, B], value: A, deadline: float) -> B:
    if isinstance(step, Composed):
        result: B = await step(value, deadline)
        return result
    stage = str(getattr(step, "stage", _NAMELESS))
    if asyncio.get_running_loop().time() >= deadline:
        raise deadline_passed(stage)
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            return await step(value, deadline)
    except TimeoutError:
        if not limit.expired():
            raise
        raise deadline_passed(stage) from None
