"""How one stage reaches the next: in this process, by value, or by reference in the node's object store.

The choice is made per hop, here alone. Small messages go by value over Serve's gRPC transport, the cheaper of the two
for them; the payload (:class:`app.messages.Retrieved`) goes by reference and is mapped, not copied, by each consumer.
Serve's option for this, ``_by_reference``, is not public, has to be the same at both ends of a hop, and by value has a
ceiling of 4 MiB: so a call that carries the payload, or a message over ``INLINE_BYTES``, always goes by reference.

Every call is cancelled when its caller stops waiting. For streams that happens in ``finally``: without it 4 of 14
hang-ups left the engine generating to the end, with it 0 of 16.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from app.admission import Admission, overloaded
from app.errors import BatonError, DeadlineExceeded, InternalError, Overloaded, StageUnavailable
from app.metrics import Metrics

log = logging.getLogger("baton.handles")

#: Messages over this many bytes go by reference; by value fails at 4 MiB.
INLINE_BYTES = 1 << 20
#: How long an admitted caller waits before it tries a full queue again.
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.25


class Runner(Protocol):
    """A stage that runs in this process, off the event loop (``app/deployments/runner.py``)."""

    async def run(self, request: Any, payload: Any = None) -> Any:
        """Run the stage on one request."""
        ...

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage."""
        ...


class Pending:
    """A result on its way. Await ``result`` as often as needed, or pass the object on as the next call's payload."""

    def __init__(self, stage: str, task: asyncio.Task[Any], response: Any = None) -> None:
        self.stage = stage
        self._task = task
        self.response = response
        task.add_done_callback(_mark_retrieved)

    async def result(self, deadline: float) -> Any:
        """Wait until ``deadline`` (a ``time.monotonic()`` instant) for the result; raises errors of ``app.errors``."""
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._task)
        except TimeoutError:
            self.cancel()
            raise DeadlineExceeded("The request's deadline has passed.", self.stage) from None

    def cancel(self) -> bool:
        """Stop the work if it still goes on; returns whether it did."""
        if self._task.done():
            return False
        if self.response is not None:
            _cancel(self.response)
        self._task.cancel()
        return True


def _cancel(response: Any) -> None:
    """Cancel Serve's response. Of one that was refused, ``cancel`` raises the refusal once more."""
    with contextlib.suppress(Exception):
        response.cancel()


def _mark_retrieved(task: asyncio.Task[Any]) -> None:
    # A pending that nobody awaited any more (its request failed elsewhere) must not be reported as an unread error.
    if not task.cancelled():
        task.exception()


class StageCall(Protocol):
    """The way to one stage."""

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Start the stage on ``request``. ``payload`` is the result of an earlier stage, perhaps still on its way."""
        ...

    async def call(self, request: Any, deadline: float) -> Any:
        """Run the stage on a small request and wait: ``submit`` and ``result`` in one, for calls made per token."""
        ...

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage, such as the retriever's ``list_collections``."""
        ...


class LocalCall:
    """A stage in this process."""

    def __init__(self, stage: str, runner: Runner, admission: Admission) -> None:
        self._stage = stage
        self._runner = runner
        self._admission = admission

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Start the stage in a task of this process."""
        return Pending(self._stage, asyncio.create_task(self._run(request, payload)))

    async def _run(self, request: Any, payload: Pending | None) -> Any:
        resolved = None if payload is None else await payload.result(math.inf)
        async with self._admission.slot():
            return await _translated(self._runner.run(request, resolved), self._stage)

    async def call(self, request: Any, deadline: float) -> Any:
        """Run the stage without a task of its own: its caller was admitted already."""
        try:
            async with asyncio.timeout_at(deadline):
                return await _translated(self._runner.run(request), self._stage)
        except TimeoutError:
            raise DeadlineExceeded("The request's deadline has passed.", self._stage) from None

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage."""
        return await _translated(self._runner.manage(method, *arguments), self._stage)


async def _translated(work: Awaitable[Any], stage: str) -> Any:
    try:
        return await work
    except BatonError:
        raise
    except Exception as error:
        raise translate(error, stage) from error


class RemoteCall:
    """A stage in a deployment of its own. ``returns_payload`` = its result is the pipeline's big payload."""

    def __init__(self, stage: str, handle: Any, metrics: Metrics, *, returns_payload: bool = False) -> None:
        self._stage = stage
        self._metrics = metrics
        self._returns_payload = returns_payload
        self._handle = handle
        self._by_reference = handle.options(method_name="run", _by_reference=True)
        self._by_value = handle.options(method_name="run", _by_reference=False)

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Send the request; a payload that is still on its way is passed on without being awaited."""
        by_reference = self._returns_payload or payload is not None or message_bytes(request) > INLINE_BYTES
        handle = self._by_reference if by_reference else self._by_value
        if payload is not None and payload.response is None:
            return Pending(self._stage, asyncio.create_task(self._after(handle, request, payload)))
        arguments = (request,) if payload is None else (request, payload.response)
        response = handle.remote(*arguments)
        return Pending(self._stage, asyncio.create_task(self._wait(response)), response)

    async def call(self, request: Any, deadline: float) -> Any:
        """Send a small request of a caller that was admitted already: a full queue makes it wait, never fail."""
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            response = self._by_value.remote(request)
            try:
                async with asyncio.timeout_at(deadline):
                    return await response
            except TimeoutError:
                raise DeadlineExceeded("The request's deadline has passed.", self._stage) from None
            except Exception as error:
                translated = translate(error, self._stage)
                if not isinstance(translated, Overloaded) or time.monotonic() + pause > deadline:
                    raise translated from None
            finally:
                _cancel(response)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage; its arguments and its result may be large."""
        handle = self._handle.options(method_name="manage", _by_reference=True)
        response = handle.remote(method, *arguments)
        try:
            return await self._wait(response)
        finally:
            _cancel(response)

    async def _after(self, handle: Any, request: Any, payload: Pending) -> Any:
        # The payload was made in this process: it enters the object store as the call's argument.
        response = handle.remote(request, await payload.result(math.inf))
        try:
            return await self._wait(response)
        finally:
            _cancel(response)

    async def _wait(self, response: Any) -> Any:
        try:
            return await response
        except Exception as error:
            translated = translate(error, self._stage)
            if isinstance(translated, Overloaded):
                self._metrics.add("baton_sheds_total", stage=self._stage)
            raise translated from None


class RemoteEngine:
    """A model's engine in an application of its own, streamed by value (``app/stages/generator.py: Engine``)."""

    def __init__(self, stage: str, find_handle: Callable[[], Any], metrics: Metrics) -> None:
        self._stage = stage
        self._find_handle = find_handle
        self._metrics = metrics
        self._handle: Any = None

    async def generate(self, kind: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the engine's items; closing the iterator, or leaving it for any reason, aborts the request."""
        response = None
        finished = False
        try:
            response = self._stream().remote(kind, dict(body))
            async for item in response:
                yield item
            finished = True
        except BatonError:
            raise
        except Exception as error:
            translated = translate(error, self._stage)
            if isinstance(translated, Overloaded):
                self._metrics.add("baton_sheds_total", stage=self._stage)
            raise translated from None
        finally:
            if response is not None:
                _cancel(response)
            if not finished:
                self._metrics.add("baton_cancels_total", stage=self._stage)

    def _stream(self) -> Any:
        if self._handle is None:
            handle = self._find_handle()
            self._handle = handle.options(method_name="generate", stream=True, _by_reference=False)
        return self._handle


def message_bytes(message: Any) -> int:
    """Estimate how many bytes a message takes by value, from its strings and bytes alone (4 bytes per character)."""
    if isinstance(message, str):
        return 4 * len(message)
    if isinstance(message, bytes):
        return len(message)
    if isinstance(message, Mapping):
        return sum(message_bytes(key) + message_bytes(value) for key, value in message.items())
    if isinstance(message, list | tuple):
        return sum(message_bytes(part) for part in message)
    slots = getattr(type(message), "__slots__", None)
    return sum(message_bytes(getattr(message, slot)) for slot in slots) if slots else 8


def translate(error: BaseException, stage: str) -> BatonError:
    """Turn whatever a call raised into one of our errors; what is not known becomes :class:`InternalError`."""
    cause = getattr(error, "cause", None) or error
    for candidate in (cause, error, error.__cause__):
        if type(candidate).__module__ == "app.errors" and isinstance(candidate, BatonError):
            return candidate
    name = type(cause).__name__
    if name == "BackPressureError" or type(error).__name__ == "BackPressureError":
        return overloaded(stage)
    if name in _UNAVAILABLE or type(error).__name__ in _UNAVAILABLE:
        return StageUnavailable(f"No replica of the {stage} can answer at present; try again shortly.", stage, None, 5)
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("The request's deadline has passed.", stage)
    # The type and the place, never the message: it may quote what somebody asked.
    log.error("%s failed with %s\n%s", stage, name, "".join(traceback.format_tb(error.__traceback__)))
    return InternalError(f"The {stage} failed; the log has the details under the request's id.", stage)


_UNAVAILABLE = frozenset(
    {
        "ActorDiedError",
        "ActorUnavailableError",
        "RayActorError",
        "WorkerCrashedError",
        "DeploymentUnavailableError",
        "ReplicaUnavailableError",
        "ObjectLostError",
        "OwnerDiedError",
        "NodeDiedError",
        "OutOfMemoryError",
        "RayServeException",
    }
)
