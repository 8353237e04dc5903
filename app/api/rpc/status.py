"""The one place where errors become gRPC statuses: the same sentence and code as over HTTP, in trailing metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import grpc

from app.api.middleware import VARIANT
from app.api.request_ids import REQUEST_ID
from app.errors import BatonError, NotFound, Overloaded, UpstreamTimeout

#: HTTP's status of an error to gRPC's. What is not named here is INVALID_ARGUMENT below 500, INTERNAL from there on.
_BY_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_FIELDS = ("code", "type", "stage", "param")
#: Headers of a reply that gRPC's callers get as trailing metadata.
_TOLD = (REQUEST_ID, VARIANT, "retry-after")
_TOLD_PREFIX = "x-ratelimit-"


class CallContext(Protocol):
    """What an RPC method sees of its call; Serve hands it on."""

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the caller's metadata; keys are in lower case."""
        ...

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status."""
        ...

    def set_details(self, details: str) -> None:
        """Set the status's sentence."""
        ...

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        """Set what goes out beside the status."""
        ...


def _by_code(kind: type[BatonError] = BatonError) -> Iterator[tuple[str, grpc.StatusCode]]:
    unnamed = grpc.StatusCode.INVALID_ARGUMENT if kind.status < 500 else grpc.StatusCode.INTERNAL
    yield kind.code, _BY_STATUS.get(kind.status, unnamed)
    for below in kind.__subclasses__():
        yield from _by_code(below)


#: Our code of an error to gRPC's status. A full queue is told from a stage that is away. A page whose server is slow is
#: no deadline of the caller's: a later one would not help, and clients do not try again what their own deadline ended.
STATUSES: Mapping[str, grpc.StatusCode] = {
    **dict(_by_code()),
    Overloaded.code: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UpstreamTimeout.code: grpc.StatusCode.UNAVAILABLE,
}


def not_deployed(application: str) -> NotFound:
    """Return what a caller is told of an application that is not there."""
    return NotFound(f"The application {application!r} is not deployed: ask the operator to turn it on.")


def tell(context: CallContext, headers: Mapping[str, str], error: Mapping[str, Any] | None = None) -> None:
    """Put what a reply's headers say into the call's trailing metadata and an error's body into its status as well."""
    trailing = [(name, value) for name, value in headers.items() if name in _TOLD or name.startswith(_TOLD_PREFIX)]
    if error is not None:
        found = error["error"]
        context.set_code(STATUSES.get(found["code"], grpc.StatusCode.INTERNAL))
        context.set_details(found["message"])
        trailing += [(f"baton-{name}", plain(found[name])) for name in _FIELDS if found.get(name)]
    context.set_trailing_metadata(trailing)


def plain(value: str) -> str:
    """Return what metadata may hold: printable ASCII."""
    return value.encode("ascii", "backslashreplace").decode().translate(dict.fromkeys((*range(32), 127), "?"))
