"""What Serve's gRPC proxy, which runs on each node, wraps around each call (``grpc_servicer_functions``).

Serve hands on neither a call's deadline nor a fit request id, lets its caller choose the application, says in its own
words that no replica answers, and waits for one without an end. It offers no interceptors, so its handlers are wrapped
where they are made.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol

import grpc
from starlette.datastructures import Headers

from app.api.request_ids import REQUEST_ID, fit_request_id
from app.api.rpc.service import SECONDS_LEFT
from app.api.rpc.status import not_deployed, tell
from app.config.serve import PIPELINE
from app.deployments.proxy import WAIT_SECONDS, drop_unless_assigned
from app.errors import BatonError, PayloadTooLarge, StageUnavailable
from app.protos.baton_pb2_grpc import add_BatonServicer_to_server

#: A request goes to its replica in one message, of 4 MiB at most (gRPC's default, which Serve keeps) with its wrapping.
MAX_REQUEST_BYTES = 4 * 1024 * 1024 - 16 * 1024
_APPLICATION, _SERVE_REQUEST_ID = "application", "request_id"
#: Metadata that is ours to write: a caller who sends them is not believed.
_OURS = frozenset({_APPLICATION, _SERVE_REQUEST_ID, REQUEST_ID, SECONDS_LEFT})
_RETRY_SECONDS = 5


def _unavailable(message: str) -> StageUnavailable:
    return StageUnavailable(message, "gateway", None, _RETRY_SECONDS)


_STOPPED = _unavailable("The gateway stopped before it answered: send the request again shortly.")
_NO_REPLICA = _unavailable("No replica of the gateway can answer at present; try again shortly.")
#: Which application answers an RPC, where it is not the pipeline.
_APPLICATIONS = {"Analyze": "analyze", "Articles": "articles"}
#: What Serve says by itself, in its own words: no replica, a replica that died.
_SERVES_OWN: dict[Any, BatonError] = {
    grpc.StatusCode.UNAVAILABLE: _NO_REPLICA,
    grpc.StatusCode.INTERNAL: _STOPPED,
}


class Handlers(Protocol):
    """Makes the proxy's handler of one RPC (Serve's ``service_handler_factory``)."""

    def __call__(self, service_method: str, streaming_type: Any) -> Callable[[Any, Any], Any]:
        """Return the handler."""
        ...


def add_to_server(servicer: Any, server: Any) -> None:
    """Add Baton's service to Serve's gRPC proxy."""
    serves = server.service_handler_factory
    server.service_handler_factory = wrapped(serves)
    try:
        add_BatonServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    finally:
        server.service_handler_factory = serves  # of Serve's own service, and of others' on the same proxy


def wrapped(serves: Handlers, wait_seconds: float = WAIT_SECONDS) -> Handlers:
    """Return a factory of handlers that run Serve's with a :class:`_Call` in place of the call.

    ``wait_seconds`` bounds the wait for a replica, as over HTTP.
    """

    def make(service_method: str, streaming_type: Any) -> Callable[[Any, Any], Any]:
        handler = serves(service_method=service_method, streaming_type=streaming_type)
        application = _APPLICATIONS.get(service_method.rpartition("/")[2], PIPELINE)

        async def one(request: Any, context: Any) -> Any:
            call = _Call(context, application)
            if _is_too_large(request, call):
                return b""
            work = _Work(handler(request, call), context, wait_seconds)
            try:
                return await work.task
            finally:
                work.over()
                call.mend(work.in_vain)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            call = _Call(context, application)
            if _is_too_large(request, call):
                return
            # Read by a task of its own: Serve's generators let a call go on that is given up while they are not waited
            # for, such as while its caller is slow to read.
            messages: asyncio.Queue[Any] = asyncio.Queue()
            work = _Work(_pump(handler(request, call), messages), context, wait_seconds)
            try:
                while (message := await messages.get()) is not None:
                    work.has_begun()
                    if not context.code():  # the message that brings an error is empty
                        yield message
                await work.task
            finally:
                work.over()
                call.mend(work.in_vain)

        return stream if streaming_type.value == "unary_stream" else one

    return make


async def _pump(found: AsyncIterator[Any], messages: asyncio.Queue[Any]) -> None:
    try:
        async for message in found:
            messages.put_nowait(message)
    finally:
        messages.put_nowait(None)


def _is_too_large(request: Any, call: _Call) -> bool:
    if request.ByteSize() <= MAX_REQUEST_BYTES:
        return False
    call.refuse(PayloadTooLarge(f"The request is over the limit of {MAX_REQUEST_BYTES} bytes."))
    return True


class _Call:
    """A call as Serve sees it: with the application that is meant, a fit request id, and its deadline."""

    def __init__(self, context: Any, application: str) -> None:
        self._context = context
        self._application = application
        sent = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        self._request_id = fit_request_id(Headers({key: value for key, value in sent if key == REQUEST_ID}))
        ours = {_APPLICATION: application, _SERVE_REQUEST_ID: self._request_id, REQUEST_ID: self._request_id}
        left = context.time_remaining()
        if left is not None:
            ours[SECONDS_LEFT] = f"{left:.6f}"
        self._metadata = [(key, value) for key, value in sent if key not in _OURS] + list(ours.items())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that the gateway gets."""
        return self._metadata

    def refuse(self, error: BatonError) -> None:
        """End the call with an error."""
        headers = {REQUEST_ID: self._request_id, **{name.lower(): value for name, value in error.headers().items()}}
        tell(self._context, headers, error.body())

    def mend(self, in_vain: bool) -> None:
        """Put our sentence in place of Serve's, where the gateway did not end the call itself."""
        told = {key for key, _ in self._context.trailing_metadata() or ()}
        code = self._context.code()
        own = _NO_REPLICA if in_vain else _SERVES_OWN.get(code)
        if code == grpc.StatusCode.NOT_FOUND:
            own = _NO_REPLICA if self._application == PIPELINE else not_deployed(self._application)
        if own is not None and "baton-code" not in told:
            self.refuse(own)


class _Work:
    """Serve's work on a call: ends with it, and where no replica took it in time.

    It has a context of its own, in which Serve notes what it calls the request: the timer looks there.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], call: Any, wait_seconds: float) -> None:
        context, loop = contextvars.copy_context(), asyncio.get_running_loop()
        self.task = loop.create_task(work, context=context)
        self.in_vain = False
        self._timer = loop.call_later(wait_seconds, self._give_up, context=context)
        call.add_done_callback(lambda _: self.over())

    def _give_up(self) -> None:
        self.in_vain = drop_unless_assigned()

    def has_begun(self) -> None:
        """Tell that a replica has answered."""
        self._timer.cancel()

    def over(self) -> None:
        """Stop whatever still goes on."""
        self._timer.cancel()
        self.task.cancel()
