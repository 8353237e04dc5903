"""What a call to a stage may fail with, as errors of :mod:`app.errors`."""

from __future__ import annotations

import traceback

from app.admission import overloaded
from app.errors import (
    BatonError,
    InternalError,
    ReplicaLost,
    StageUnavailable,
    deadline_passed,
    engine_died,
)
from app.logs import logger

log = logger("gateway")


def translate(error: BaseException, stage: str) -> BatonError:
    """Turn whatever a call raised into one of our errors; what is not known becomes :class:`InternalError`."""
    cause = getattr(error, "cause", None) or error
    for candidate in (cause, error, error.__cause__):
        if type(candidate).__module__ == "app.errors" and isinstance(candidate, BatonError):
            return candidate
    name = type(cause).__name__
    if name == "BackPressureError" or type(error).__name__ == "BackPressureError":
        return overloaded(stage)
    if name == "EngineDeadError":
        return engine_died(stage)
    if any(_lost(candidate) for candidate in (cause, error, error.__cause__)):
        return ReplicaLost(f"No replica of the {stage} can answer at present; try again shortly.", stage, None, 5)
    if name in _UNAVAILABLE or type(error).__name__ in _UNAVAILABLE:
        return StageUnavailable(f"No replica of the {stage} can answer at present; try again shortly.", stage, None, 5)
    if isinstance(error, TimeoutError) or name in _CANCELLED:
        return deadline_passed(stage)
    # The type and the place, never the message: it may quote what somebody asked.
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed with %s\n%s", stage, name, where, extra={"stage": stage, "error_type": name})
    return InternalError(f"The {stage} failed; the log has the details under the request's id.", stage)


def last_words(message: str) -> str:
    """Return what Serve says of a deployment or, where that is a stack trace, its last line: what was raised."""
    return message.strip().splitlines()[-1].strip() if "Traceback (most recent call last)" in message else message


def _lost(error: BaseException | None) -> bool:
    """Tell whether the replica that had the call is gone, as Ray says it or, by value, gRPC."""
    name = type(error).__name__
    if name == "AioRpcError":
        return error.code().name in {"UNAVAILABLE", "CANCELLED"}  # type: ignore[union-attr]
    # How Serve tells that a stream's connection closed before the replica took the call.
    closed = name == "RuntimeError" and str(error).startswith("Unexpected error (StatusCode.UNAVAILABLE)")
    return name in _LOST or closed


_LOST = frozenset(
    {
        "ActorDiedError",
        "ActorUnavailableError",
        "RayActorError",
        "WorkerCrashedError",
        "ReplicaUnavailableError",
        "ObjectLostError",
        "OwnerDiedError",
        "NodeDiedError",
    }
)
#: What a response says that was cancelled from here, where it says so before the wait for it is over.
_CANCELLED = frozenset({"RequestCancelledError", "TaskCancelledError"})
_UNAVAILABLE = frozenset({"DeploymentUnavailableError", "OutOfMemoryError", "RayServeException"})
