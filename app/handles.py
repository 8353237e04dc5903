"""How one stage reaches the next: in this process, by value, or through the node's shared memory.

The choice is made per hop, here alone. Small messages go by value over Serve's gRPC transport, the cheaper of the two
for them. The payload (:class:`app.messages.Retrieved`) is written once into the node's arena (``app/payloads.py``) and
mapped, not copied, by each consumer; only its place travels, by value. Where a stage lies on another node, or no slot
is free, the payload goes by reference through Ray's object store. Serve's option for this, ``_by_reference``, is not
public, has to be the same at both ends of a hop, and by value has a ceiling of 4 MiB: so a message over
``INLINE_BYTES`` goes by reference as well.

Every call is cancelled when its caller stops waiting. For streams that happens in ``finally``: without it 4 of 14
hang-ups left the engine generating to the end, with it 0 of 16.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cached_property, partial
from typing import Any, Protocol

from app.absence import Absence, Gone, never
from app.admission import Admission
from app.errors import BatonError, Overloaded, PayloadElsewhere, ReplicaLost, deadline_passed
from app.failures import translate
from app.metrics import Metrics
from app.payloads import Payloads, PlacedRetrieved
from app.retries import Retries
from app.traces import OFF, Span, Traces

#: Messages over this many bytes go by reference; by value fails at 4 MiB.
INLINE_BYTES = 1 << 20
#: How long an admitted caller waits before it tries a full queue again.
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.25

#: How long a cancelled consumer may still read a payload: its thread goes on until the stage's work is done.
_LINGERING_SECONDS = 10.0
#: A retriever's replica on another node answered: for so long ask for payloads by reference.
_ELSEWHERE_SECONDS = 60.0
#: Methods besides ``run`` that change nothing, so that they may be called again when a replica dies.
_SAFE_METHODS = frozenset({"embed_queries", "list_collections", "splice"})


class Runner(Protocol):
    """A stage that runs in this process, off the event loop (``app/deployments/runner.py``)."""

    async def run(self, request: Any, payload: Any = None) -> Any:
        """Run the stage on one request."""
        ...

    def run_now(self, request: Any) -> Any:
        """Return the result where that takes less than a switch of threads, else None."""
        ...

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage."""
        ...


class Pending:
    """A result on its way. Await ``result`` as often as needed, or pass the object on as the next call's payload.

    ``response`` is Serve's response to cancel; ``reference`` the one that stands for a payload in the object store.
    """

    def __init__(self, stage: str, response: Any = None) -> None:
        self.stage = stage
        self.response = response
        self.reference: Any = None
        self.placed: PlacedRetrieved | None = None
        self.abandoned = False
        self._payloads: Payloads | None = None
        self._task: asyncio.Task[Any]

    def run(self, work: Coroutine[Any, Any, Any]) -> Pending:
        """Begin to wait for ``work``."""
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(_mark_retrieved)
        return self

    async def result(self, deadline: float) -> Any:
        """Wait until ``deadline`` (a ``time.monotonic()`` instant) for the result; raises errors of ``app.errors``."""
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._task)
        except TimeoutError:
            self.cancel()
            raise deadline_passed(self.stage) from None

    def cancel(self) -> bool:
        """Stop the work if it still goes on; returns whether it did."""
        if self._task.done():
            return False
        self.abandoned = True
        if self.response is not None:
            cancel_response(self.response)
        self._task.cancel()
        return True

    def hold(self, placed: PlacedRetrieved, payloads: Payloads) -> None:
        """Note that the result lies in shared memory and has to be released."""
        self.placed, self._payloads = placed, payloads

    def release(self, *, lingering: bool) -> None:
        """Give the result's shared memory back: later when somebody whose call was cancelled may still read it."""
        if self.placed is None or self._payloads is None:
            return
        delay = _LINGERING_SECONDS if lingering else 0
        asyncio.get_running_loop().call_later(delay, self._payloads.release, self.placed)
        self.placed = None


def cancel_response(response: Any) -> None:
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

    def __init__(self, stage: str, runner: Runner, admission: Admission, traces: Traces = OFF) -> None:
        self._stage = stage
        self._runner = runner
        self._admission = admission
        self._traces = traces

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Start the stage in a task of this process."""
        return Pending(self._stage).run(self._run(request, payload))

    async def _run(self, request: Any, payload: Pending | None) -> Any:
        resolved = None if payload is None else await payload.result(math.inf)
        with self._traces.stage(self._stage, request) as span:
            async with self._admission.slot():
                span.event("admitted")
                result = await _translated(self._runner.run(request, resolved), self._stage)
            span.found(result)
        return result

    async def call(self, request: Any, deadline: float) -> Any:
        """Run the stage without a task of its own, and without a timer where nothing is waited for."""
        try:
            result = self._runner.run_now(request)
        except Exception as error:
            raise translate(error, self._stage) from None
        if result is not None:
            return result
        try:
            async with asyncio.timeout_at(deadline):
                return await _translated(self._runner.run(request), self._stage)
        except TimeoutError:
            raise deadline_passed(self._stage) from None

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage."""
        with self._traces.stage(self._stage) as span:
            span.set(code__function__name=method)
            result = await _translated(self._runner.manage(method, *arguments), self._stage)
            span.found(result)
        return result


async def _translated(work: Awaitable[Any], stage: str) -> Any:
    try:
        return await work
    except BatonError:
        raise
    except Exception as error:
        raise translate(error, stage) from error


class RemoteCall:
    """A stage in a deployment of its own. ``payloads`` = the way through this node's shared memory, where it is on.

    ``gone`` tells whether the deployment was removed.
    """

    def __init__(
        self,
        stage: str,
        handle: Any,
        metrics: Metrics,
        payloads: Payloads | None = None,
        traces: Traces = OFF,
        gone: Gone = never,
    ) -> None:
        self._stage = stage
        self._absence = Absence(stage, gone)
        self._metrics = metrics
        self._payloads = payloads
        self._traces = traces
        self._retries = Retries(stage, metrics)
        self._handle = handle
        self._by_reference = handle.options(method_name="run", _by_reference=True)
        self._by_value = handle.options(method_name="run", _by_reference=False)

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Send the request; a payload in the object store is passed on without being awaited."""
        span = self._traces.stage(self._stage, request, call=True)
        pending = Pending(self._stage)
        attempt: Callable[[bool], Awaitable[Any]]
        if payload is None or payload.reference is not None:
            pending.response = self._send(request, payload and payload.reference, span)
            attempt = partial(self._answered, pending, request, payload, span)
        else:
            attempt = partial(self._after, request, payload, span)
        return pending.run(self._traced(span, self._retries.run, attempt))

    def _send(self, request: Any, payload: Any, span: Span) -> Any:
        if payload is None:
            return self._way(request).remote(request, **span.handed_on)
        return self._by_reference.remote(request, payload, time.time(), **span.handed_on)

    async def _answered(
        self, pending: Pending, request: Any, payload: Pending | None, span: Span, repeated: bool
    ) -> Any:
        if repeated:  # what a reference stands for may have died with its owner; this process has mapped it
            made = None if payload is None else await payload.result(math.inf)
            pending.response = self._send(request, made, span)
        return await self._wait(pending.response)

    def _way(self, request: Any) -> Any:
        return self._by_reference if message_bytes(request) > INLINE_BYTES else self._by_value

    async def _traced(self, span: Span, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        with span:
            result = await work(*arguments)
            span.found(result)
        return result

    async def call(self, request: Any, deadline: float) -> Any:
        """Send a small request of a caller that was admitted already: a full queue makes it wait, never fail."""
        pause, made = _SHORTEST_PAUSE_SECONDS, 1
        while True:
            response = self._by_value.remote(request)
            try:
                async with asyncio.timeout_at(deadline), self._absence.watching(response):
                    return await response
            except TimeoutError:
                raise deadline_passed(self._stage) from None
            except Exception as error:
                translated = translate(error, self._stage)
            finally:
                cancel_response(response)
            if isinstance(translated, ReplicaLost) and await self._retries.another(made):
                made += 1
                continue
            if not isinstance(translated, Overloaded) or time.monotonic() + pause > deadline:
                raise translated
            self._metrics.add("baton_retries_total", stage=self._stage)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def manage(self, method: str, *arguments: Any) -> Any:
        """Call another method of the stage; its arguments and its result may be large."""
        handle = self._handle.options(method_name="manage", _by_reference=True)
        span = self._traces.stage(self._stage, call=True)
        span.set(code__function__name=method)
        if method not in _SAFE_METHODS:
            return await self._traced(span, self._exchange, handle, span, method, *arguments)

        async def attempt(repeated: bool) -> Any:
            return await self._exchange(handle, span, method, *arguments)

        return await self._traced(span, self._retries.run, attempt)

    async def _after(self, request: Any, payload: Pending, span: Span, repeated: bool) -> Any:
        """Send the request with a payload in shared memory, or else as an argument through the object store."""
        made = await payload.result(math.inf)
        if payload.placed is None and payload.reference is None and self._payloads is not None:
            placed = await self._payloads.place(made)
            if placed is not None:
                payload.hold(placed, self._payloads)
        if payload.placed is not None:
            with contextlib.suppress(PayloadElsewhere):  # a replica on another node
                return await self._exchange(self._way(request), span, request, payload.placed, time.time())
        passed = made if repeated or payload.reference is None else payload.reference
        return await self._exchange(self._by_reference, span, request, passed, time.time())

    async def _exchange(self, handle: Any, span: Span, *arguments: Any) -> Any:
        response = handle.remote(*arguments, **span.handed_on)
        try:
            return await self._wait(response)
        finally:
            cancel_response(response)

    async def _wait(self, response: Any) -> Any:
        try:
            async with self._absence.watching(response):
                return await response
        except Exception as error:
            translated = translate(error, self._stage)
            if isinstance(translated, Overloaded):
                self._metrics.add("baton_sheds_total", stage=self._stage, priority="")
            raise translated from None


class RemoteRetriever(RemoteCall):
    """The retriever in a deployment of its own: its result comes through shared memory, or by reference."""

    _elsewhere_until = 0.0

    @cached_property
    def _place(self) -> Any:
        return self._handle.options(method_name="place", _by_reference=False)

    def submit(self, request: Any, payload: Pending | None = None) -> Pending:
        """Send the question."""
        pending = Pending(self._stage)
        span = self._traces.stage(self._stage, request, call=True)
        self._ask(request, pending, span)
        attempt = partial(self._found, request, pending, span)
        return pending.run(self._traced(span, self._retries.run, attempt))

    def _ask(self, request: Any, pending: Pending, span: Span) -> None:
        if self._payloads is None or time.monotonic() <= self._elsewhere_until:
            self._refer(request, pending, span)
        else:
            pending.response, pending.reference = self._place.remote(request, **span.handed_on), None

    async def _found(self, request: Any, pending: Pending, span: Span, repeated: bool) -> Any:
        if repeated:
            self._ask(request, pending, span)
        if self._payloads is None or pending.reference is not None:
            return await self._wait(pending.response)
        return await self._placed(request, pending, self._payloads, span)

    async def _placed(self, request: Any, pending: Pending, payloads: Payloads, span: Span) -> Any:
        placed = await self._wait(pending.response)
        if placed is not None:
            try:
                payloads.keep(placed)
                pending.hold(placed, payloads)
                return payloads.open(placed)
            except PayloadElsewhere:
                self._elsewhere_until = time.monotonic() + _ELSEWHERE_SECONDS
        return await self._wait(self._refer(request, pending, span))

    def _refer(self, request: Any, pending: Pending, span: Span) -> Any:
        pending.response = pending.reference = self._by_reference.remote(request, **span.handed_on)
        return pending.response


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
