"""Spans of a request on its way through the stages, for an OpenTelemetry collector.

One :class:`Traces` per process. Off (the default) it is one check per call: :data:`NO_SPAN` stands in for every span
and the SDK is never imported. On, spans go to the collector from a thread of their own, over a bounded queue that drops
what does not fit: a request never waits for a collector and never fails with it.

A span is made for a request that is traced already, never for itself: the gateway's middleware begins the trace.
Errors leave their type, never their sentence, which may quote what somebody asked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from app.config.observing import TracesConfig
from app.span_facts import Facts

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from app.live_traces import LiveTraces

#: How long a process that stops waits for its last spans to be taken.
_FAREWELL_SECONDS = 2.0

Carrier = Mapping[str, str]
_NOTHING: Mapping[str, Carrier] = {}


class Span:
    """A span, ended by its ``with`` block; this one stands for none."""

    __slots__ = ()

    @property
    def handed_on(self) -> Mapping[str, Carrier]:
        """What a remote call takes along as keyword arguments, so that its callee's spans become children of this."""
        return _NOTHING

    @property
    def traceparent(self) -> str:
        """The span as a W3C header; empty for none."""
        return ""

    @property
    def trace_id(self) -> str:
        """The trace that it belongs to; empty for none."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def found(self, message: Any) -> None:
        """Note what a stage's message says: its request or its result."""

    def set(self, **facts: Any) -> None:
        """Note facts; a double underscore stands for a dot."""

    def event(self, name: str) -> None:
        """Note that something happened just now."""

    def rename(self, name: str) -> None:
        """Give the span another name."""

    def fail(self, error_type: str, *, ours: bool) -> None:
        """Note how the work failed; ``ours``: not the caller's mistake."""


#: What every span is while nothing is traced.
NO_SPAN = Span()


class Traces:
    """Makes the spans of this process; ``service`` is its name in the collector: a deployment's."""

    def __init__(self, service: str) -> None:
        self.content = False
        self._service = service
        self._config = TracesConfig()
        self._live: LiveTraces | None = None

    @property
    def on(self) -> bool:
        """Whether anything is traced."""
        return self._live is not None

    def configure(self, config: TracesConfig) -> None:
        """Take new settings, live. Loads the SDK where there is an endpoint, so not for an event loop."""
        if config == self._config:
            return
        old, new = self._live, None
        if config.endpoint:
            from app.live_traces import LiveTraces

            new = LiveTraces(self._service, config)
        self._config, self._live, self.content = config, new, config.content
        if old is not None:
            old.shut_down()

    def close(self) -> None:
        """Send what waits, for two seconds at most."""
        live, self._live, self._config = self._live, None, TracesConfig()
        if live is not None:
            live.shut_down().join(_FAREWELL_SECONDS)

    def current(self) -> Any:
        """Return what later spans may be children of: the span at work here; None where nothing is traced."""
        return None if self._live is None else self._live.current()

    def request(self, name: str, headers: Mapping[str, str]) -> Span:
        """Begin a request's trace, or go on with the caller's (W3C ``traceparent`` and ``tracestate``)."""
        return NO_SPAN if self._live is None else self._live.of_caller(name, headers)

    def handled(self, stage: str, trace: Carrier | None, message: Any) -> Span:
        """Begin the span of a call that came from another process with its ``trace``."""
        if self._live is None or not trace:
            return NO_SPAN
        span = self._live.of_caller(stage, trace)
        span.found(message)
        return span

    def stage(self, stage: str, message: Any = None, *, call: bool = False) -> Span:
        """Begin the span of a stage's work under the one at work here.

        ``call``: the work is done in another process; such a span may end in another task than it began in.
        """
        if self._live is None:
            return NO_SPAN
        above = self._live.current()
        if above is None:
            return NO_SPAN
        span = self._live.below(stage, above, call)
        span.found(message)
        return span

    def batch(self, stage: str, requests: Sequence[Any]) -> Span:
        """Begin the span of work for several requests at once; ``requests``: what :meth:`current` gave for each.

        It stands in the trace of the first one and links to all; each of the others links back to it.
        """
        if self._live is None:
            return NO_SPAN
        traced = [span for span in requests if span is not None and span.is_recording()]
        return self._live.batch(f"{stage} batch", traced, len(requests)) if traced else NO_SPAN

    def past(self, stage: str, parent: Any, began_ns: int, facts: Facts) -> None:
        """Record a span that ends now, such as the many short pieces of work along a stream."""
        if self._live is not None and parent is not None:
            self._live.past(stage, parent, began_ns, facts)


def current_trace_id() -> str:
    """Return the id of the trace that is at work here, or an empty text. Loads nothing for it."""
    api = sys.modules.get("opentelemetry.trace")
    found = api.get_current_span().get_span_context() if api is not None else None
    return format(found.trace_id, "032x") if found is not None and found.is_valid else ""


def current_carrier() -> Carrier | None:
    """Return the span at work here as W3C headers, for what is called next; None where nothing is traced."""
    api = sys.modules.get("opentelemetry.trace")
    found = api.get_current_span().get_span_context() if api is not None else None
    return carrier_of(found) if found is not None and found.is_valid else None


def carrier_of(found: SpanContext) -> Carrier:
    """Return a span as W3C headers."""
    carrier = {"traceparent": traceparent_of(found)}
    return carrier | ({"tracestate": found.trace_state.to_header()} if found.trace_state else {})


def traceparent_of(found: SpanContext) -> str:
    """Return a span as the header ``traceparent``."""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


#: For processes and tests in which nothing is ever traced.
OFF = Traces("none")
