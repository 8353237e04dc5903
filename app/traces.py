"""Spans of a request on its way through the stages, for an OpenTelemetry collector.

One :class:`Traces` per process. Off (the default) it is one check per call: :data:`NO_SPAN` stands in for every span
and the SDK is never imported. On, spans go to the collector from a thread of their own, over a bounded queue that drops
what does not fit: a request never waits for a collector and never fails with it.

A span is made for a request that is traced already, never for itself: the gateway's middleware begins the trace.
Errors leave their type, never their sentence, which may quote what somebody asked.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from app.config.observing import TracesConfig
from app.errors import BatonError, ClientError
from app.span_facts import Facts, facts_of

#: Spans that wait for the collector; over that they are dropped.
_QUEUED_SPANS = 4096
_EXPORT_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
#: How long a process that stops waits for its last spans to be taken.
_FAREWELL_SECONDS = 2.0
#: How long the exporter says no more of a collector that is gone.
_SILENCE_SECONDS = 60.0
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

Carrier = Mapping[str, str]


class Span:
    """A span, ended by its ``with`` block; this one stands for none."""

    __slots__ = ()

    #: What a remote call takes along as keyword arguments, so that its callee's spans become children of this one.
    handed_on: Mapping[str, Carrier] = {}
    traceparent = ""
    trace_id = ""

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


class LiveSpan(Span):
    """A real span. ``current``: children that are begun inside its ``with`` block find it as their parent."""

    __slots__ = ("_current", "_otel", "_token", "handed_on", "trace_id", "traceparent")

    def __init__(self, otel: Any, current: bool) -> None:
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._otel = otel
        self._current = current
        self._token: Any = None
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(otel))
        self.handed_on = {"trace": carrier}
        self.traceparent = carrier["traceparent"]
        self.trace_id = self.traceparent.split("-")[1]

    def __enter__(self) -> Self:
        if self._current:
            from opentelemetry import context, trace

            self._token = context.attach(trace.set_span_in_context(self._otel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            from opentelemetry import context

            context.detach(self._token)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.fail("cancelled", ours=False)
        elif error is not None:
            name = error.code if isinstance(error, BatonError) else type(error).__name__
            self.fail(name, ours=not isinstance(error, ClientError))
        self._otel.end()

    def found(self, message: Any) -> None:
        """Note what a stage's message says, never a text of it."""
        if self._otel.is_recording():
            self._otel.set_attributes(facts_of(message))

    def set(self, **facts: Any) -> None:
        """Note facts; one that is None is left out."""
        known = {name.replace("__", "."): value for name, value in facts.items() if value is not None}
        self._otel.set_attributes(known)

    def event(self, name: str) -> None:
        """Note that something happened just now."""
        self._otel.add_event(name)

    def rename(self, name: str) -> None:
        """Give the span another name."""
        self._otel.update_name(name)

    def fail(self, error_type: str, *, ours: bool) -> None:
        """Note how the work failed. A caller's mistake or hang-up is no error of the span."""
        from opentelemetry.trace import Status, StatusCode

        self._otel.set_attribute("error.type", error_type)
        if ours:
            self._otel.set_status(Status(StatusCode.ERROR, error_type))


class Traces:
    """Makes the spans of this process; ``service`` is its name in the collector: a deployment's."""

    def __init__(self, service: str) -> None:
        self.on = False
        self.content = False
        self._service = service
        self._config = TracesConfig()
        self._provider: Any = None
        self._tracer: Any = None

    def configure(self, config: TracesConfig, exporter: Any = None) -> None:
        """Take new settings, live. Loads the SDK where there is an endpoint, so not for an event loop.

        ``exporter`` stands in for the one to the endpoint.
        """
        if config == self._config and exporter is None:
            return
        old = self._provider
        self._config, self.content = config, config.content
        self._provider = _provider(self._service, config, exporter) if config.endpoint else None
        self._tracer = self._provider and self._provider.get_tracer("baton")
        self.on = self._provider is not None
        if old is not None:
            _shut_down(old)

    def close(self) -> None:
        """Send what waits, for two seconds at most."""
        provider, self._provider, self.on = self._provider, None, False
        if provider is not None:
            _shut_down(provider).join(_FAREWELL_SECONDS)

    def current(self) -> Any:
        """Return what later spans may be children of: the span at work here; None where nothing is traced."""
        if not self.on:
            return None
        from opentelemetry.trace import get_current_span

        span = get_current_span()
        return span if span.get_span_context().is_valid else None

    def request(self, name: str, headers: Mapping[str, str]) -> Span:
        """Begin a request's trace, or go on with the caller's (W3C ``traceparent`` and ``tracestate``)."""
        return self._of_caller(name, headers) if self.on else NO_SPAN

    def handled(self, stage: str, trace: Carrier | None, message: Any) -> Span:
        """Begin the span of a call that came from another process with its ``trace``."""
        if not self.on or not trace:
            return NO_SPAN
        span = self._of_caller(stage, trace)
        span.found(message)
        return span

    def _of_caller(self, name: str, headers: Carrier) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract(headers, Context())
        return LiveSpan(self._tracer.start_span(name, parent, SpanKind.SERVER), current=True)

    def stage(self, stage: str, message: Any = None, *, call: bool = False, parent: Any = None) -> Span:
        """Begin the span of a stage's work under the one at work here, or under ``parent``.

        ``call``: the work is done in another process; such a span may end in another task than it began in.
        """
        if not self.on:
            return NO_SPAN
        above = self.current() if parent is None else parent
        if above is None:
            return NO_SPAN
        from opentelemetry.trace import SpanKind, set_span_in_context

        kind = SpanKind.CLIENT if call else SpanKind.INTERNAL
        span = LiveSpan(self._tracer.start_span(stage, set_span_in_context(above), kind), current=not call)
        span.found(message)
        return span

    def batch(self, stage: str, requests: Sequence[Any]) -> Span:
        """Begin the span of work for several requests at once; ``requests``: what :meth:`current` gave for each.

        It stands in the trace of the first one and links to all; each of the others links back to it.
        """
        traced = [span for span in requests if span is not None and span.is_recording()] if self.on else []
        if not traced:
            return NO_SPAN
        from opentelemetry.trace import Link, set_span_in_context

        links = [Link(span.get_span_context()) for span in traced]
        made = self._tracer.start_span(f"{stage} batch", set_span_in_context(traced[0]), links=links)
        for span in traced[1:]:
            span.add_link(made.get_span_context())
        made.set_attribute("baton.batch.size", len(requests))
        return LiveSpan(made, current=True)

    def past(self, stage: str, parent: Any, began_ns: int, facts: Facts) -> None:
        """Record a span that is over, such as the many short pieces of work along a stream."""
        if self.on and parent is not None:
            from opentelemetry.trace import set_span_in_context

            context = set_span_in_context(parent)
            self._tracer.start_span(stage, context, attributes=dict(facts), start_time=began_ns).end()


def current_trace_id() -> str:
    """Return the id of the trace that is at work here, or an empty text. Loads nothing for it."""
    api = sys.modules.get("opentelemetry.trace")
    found = api.get_current_span().get_span_context() if api is not None else None
    return format(found.trace_id, "032x") if found is not None and found.is_valid else ""


#: For processes and tests in which nothing is ever traced.
OFF = Traces("none")


def _complain_seldom(record: logging.LogRecord) -> bool:
    """Let one line a minute through: of a collector that is gone the exporter tells once a second."""
    global _complained
    if time.monotonic() - _complained < _SILENCE_SECONDS:
        return False
    _complained = time.monotonic()
    return True


_complained = -_SILENCE_SECONDS


def _provider(service: str, config: TracesConfig, exporter: Any) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(config.sampling_ratio)),
        resource=Resource.create({"service.name": f"baton-{service}", "service.namespace": "baton"}),
        shutdown_on_exit=False,
    )
    logging.getLogger(_EXPORTER).addFilter(_complain_seldom)
    sender = exporter or OTLPSpanExporter(config.endpoint, timeout=_TIMEOUT_SECONDS)
    delay = _EXPORT_SECONDS * 1000
    provider.add_span_processor(BatchSpanProcessor(sender, _QUEUED_SPANS, schedule_delay_millis=delay))
    return provider


def _shut_down(provider: Any) -> threading.Thread:
    """Send what waits in a thread, since a collector that is gone may take its time."""
    thread = threading.Thread(target=provider.shutdown, name="baton-traces-end", daemon=True)
    thread.start()
    return thread
