"""Every error that Baton raises on purpose, and how each one looks over HTTP.

::

    BatonError
    ├── ClientError               4xx  the caller can mend the request
    │   ├── InvalidRequest        400  invalid_request
    │   ├── ContextLengthExceeded 400  context_length_exceeded
    │   ├── SchemaRejected        400  invalid_json_schema
    │   ├── GuardrailBlocked      400  content_filter
    │   ├── UrlRefused            400  url_refused
    │   ├── PageUnusable          400  page_unusable
    │   ├── Unauthenticated       401  invalid_api_key
    │   ├── CrossOrigin           403  cross_origin
    │   ├── Forbidden             403  permission_denied
    │   ├── NotFound              404  not_found
    │   │   ├── ModelNotFound     404  model_not_found
    │   │   └── CollectionNotFound 404 collection_not_found
    │   ├── MethodNotAllowed      405  method_not_allowed
    │   ├── RequestTimeout        408  request_timeout
    │   ├── Conflict              409  conflict
    │   │   └── EmbeddingMismatch 409  embedding_mismatch
    │   ├── PayloadTooLarge       413  payload_too_large
    │   ├── UnsupportedMediaType  415  unsupported_media_type
    │   └── RateLimitExceeded     429  rate_limit_exceeded
    ├── ServerError               5xx  the caller may retry later
    │   ├── InternalError         500  internal_error
    │   ├── EngineFailed          502  engine_failed
    │   ├── UpstreamFailed        502  upstream_failed
    │   ├── Overloaded            503  overloaded
    │   ├── StageUnavailable      503  stage_unavailable
    │   │   ├── PayloadElsewhere  503  stage_unavailable
    │   │   └── ReplicaLost       503  stage_unavailable
    │   ├── CollectionDamaged     503  collection_damaged
    │   ├── UpstreamTimeout       504  upstream_timeout
    │   └── DeadlineExceeded      504  deadline_exceeded
    └── ConfigError                    never over HTTP: start-up and live reconfiguration

Instances cross process borders, so each one keeps its state in ``args`` and survives pickling.
No message carries prompt or answer text; ``bounded`` shortens what has to be echoed.
"""

from __future__ import annotations

from typing import Any, ClassVar

_ECHO_CHARS = 80


def bounded(value: object, limit: int = _ECHO_CHARS) -> str:
    """Return ``repr(value)`` cut to ``limit`` characters, for echoing a caller's value in a message."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


class BatonError(Exception):
    """Root of the tree. ``message`` is a sentence that says what to change; ``stage`` names where it happened."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "api_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        stage: str = "gateway",
        param: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message, stage, param, retry_after_seconds)
        self.message = message
        self.stage = stage
        self.param = param
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's shape: ``{"error": {message, type, param, code, stage}}``."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
                "stage": self.stage,
            }
        }

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that belong to this error (``Retry-After``, whole seconds)."""
        if self.retry_after_seconds is None:
            return {}
        return {"Retry-After": str(max(1, self.retry_after_seconds))}


class ClientError(BatonError):
    """The caller can mend the request."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class InvalidRequest(ClientError):
    """A field is missing, of the wrong type, or outside its limits."""


class ContextLengthExceeded(ClientError):
    """The messages (and the tokens asked for) do not fit into the model's window."""

    code = "context_length_exceeded"


class SchemaRejected(ClientError):
    """The JSON schema or grammar of ``response_format`` is faulty or over a stated limit."""

    code = "invalid_json_schema"


class GuardrailBlocked(ClientError):
    """A guardrail rule with the action ``block`` matched."""

    code = "content_filter"


class UrlRefused(ClientError):
    """A URL that must not be fetched: its form, its host or port, the address it leads to, or a redirect to such."""

    code = "url_refused"


class PageUnusable(ClientError):
    """A page that the caller named is not there, too large, of another type, or holds no text."""

    code = "page_unusable"


class Unauthenticated(ClientError):
    """Keys are on, and the request brings none that is known and valid."""

    status = 401
    code = "invalid_api_key"

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that belong to this error."""
        return {**super().headers(), "WWW-Authenticate": "Bearer"}


class CrossOrigin(ClientError):
    """A web page of another site asked for something that changes or costs something."""

    status = 403
    code = "cross_origin"


class Forbidden(ClientError):
    """The key's scopes do not reach that far."""

    status = 403
    code = "permission_denied"


class NotFound(ClientError):
    """Nothing lives at this path or under this name."""

    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    """No model or profile has this name."""

    code = "model_not_found"


def no_model(kind: str, name: str, param: str) -> ModelNotFound:
    """Return the error for a name that no ``kind`` has. Where there are keys, the list holds what the key may use."""
    return ModelNotFound(f"There is no {kind} {bounded(name)}: GET /v1/models lists those there are.", param=param)


class CollectionNotFound(NotFound):
    """No collection has this name."""

    code = "collection_not_found"


def no_collection(name: str, stage: str, param: str) -> CollectionNotFound:
    """Return the error for a collection that does not exist. Where there are keys, the list holds the key's."""
    return CollectionNotFound(
        f"There is no collection {bounded(name)}: GET /v1/collections lists those there are.", stage, param
    )


class MethodNotAllowed(ClientError):
    """The path exists but not with this HTTP method."""

    status = 405
    code = "method_not_allowed"


class RequestTimeout(ClientError):
    """The request's body did not come in time; the connection is closed, since the rest of it may still come."""

    status = 408
    code = "request_timeout"

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that belong to this error."""
        return {**super().headers(), "Connection": "close"}


class Conflict(ClientError):
    """The request contradicts what is stored."""

    status = 409
    code = "conflict"


class EmbeddingMismatch(Conflict):
    """A collection was built with another embedding size than the embedder in use has."""

    code = "embedding_mismatch"


class PayloadTooLarge(ClientError):
    """The request body is over the limit."""

    status = 413
    code = "payload_too_large"


class UnsupportedMediaType(ClientError):
    """The request body is not of a type that this endpoint reads."""

    status = 415
    code = "unsupported_media_type"


class RateLimitExceeded(ClientError):
    """The key has used up what its limits allow at present."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class ServerError(BatonError):
    """The request may succeed later, unchanged."""


class InternalError(ServerError):
    """A fault of ours; details are in the log under the request id."""


class EngineFailed(ServerError):
    """The engine gave up on the request."""

    status = 502
    code = "engine_failed"


class UpstreamFailed(ServerError):
    """A server that a page was fetched from cannot be reached, or does not answer as it should."""

    status = 502
    code = "upstream_failed"


class Overloaded(ServerError):
    """A queue is full; the request was shed before any work was done on it."""

    status = 503
    type = "overloaded_error"
    code = "overloaded"


class StageUnavailable(ServerError):
    """No replica of a stage can answer at present."""

    status = 503
    code = "stage_unavailable"


def engine_died(stage: str) -> ReplicaLost:
    """Return the error for an engine whose process ended; Serve starts another one."""
    return ReplicaLost(
        "The model's engine stopped and is being started again: send the request again in a minute.",
        stage,
        None,
        30,
    )


def model_starting(model: str, stage: str) -> StageUnavailable:
    """Return the error for a request whose deadline passed while its model had no replica yet."""
    return StageUnavailable(
        f"The model {model} has no replica yet: one is being started. Send the request again in a minute, or with a "
        "longer timeout_seconds.",
        stage,
        None,
        30,
    )


class PayloadElsewhere(StageUnavailable):
    """A payload lies in the shared memory of another node, or its producer is gone."""


class ReplicaLost(StageUnavailable):
    """The replica that had the call died, or cannot be reached; where the call is safe to repeat, another takes it."""


class CollectionDamaged(ServerError):
    """A collection exists but cannot be read."""

    status = 503
    code = "collection_damaged"


class UpstreamTimeout(ServerError):
    """A server that a page was fetched from took longer than a fetch may take."""

    status = 504
    type = "timeout_error"
    code = "upstream_timeout"


class DeadlineExceeded(ServerError):
    """The deadline that all stages of a request share has passed."""

    status = 504
    type = "timeout_error"
    code = "deadline_exceeded"


def deadline_passed(stage: str = "gateway") -> DeadlineExceeded:
    """Return the error for a request that was still at work in a stage when its deadline passed."""
    return DeadlineExceeded("The request's deadline has passed: ask for less, or raise timeout_seconds.", stage)


class ConfigError(BatonError):
    """A configuration was refused; the one in force, if any, stays in force."""

    code = "invalid_config"
