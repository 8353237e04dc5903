"""The spans of :mod:`app.traces` made with OpenTelemetry's SDK. Imported where an endpoint is named, and not before."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.config.observing import TracesConfig
from app.errors import BatonError, ClientError
from app.span_facts import Facts, facts_of
from app.traces import Carrier, Span, carrier_of, traceparent_of

#: Spans that wait for the collector; over that they are dropped.
_QUEUED_SPANS = 4096
_EXPORT_MILLISECONDS = 1000
_TIMEOUT_SECONDS = 5.0
#: How long the exporter says no more of a collector that is gone.
_SILENCE_SECONDS = 60.0
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_PROPAGATOR = TraceContextTextMapPropagator()
_complained = -_SILENCE_SECONDS


class LiveSpan(Span):
    """A real span. ``current``: children that are begun inside its ``with`` block find it as their parent."""

    __slots__ = ("_current", "_otel", "_token")

    def __init__(self, otel: OtelSpan, current: bool) -> None:
        self._otel = otel
        self._current = current
        self._token: Any = None

    @property
    def handed_on(self) -> Mapping[str, Carrier]:
        """See :class:`app.traces.Span`."""
        return {"trace": carrier_of(self._otel.get_span_context())}

    @property
    def traceparent(self) -> str:
        """See :class:`app.traces.Span`."""
        return traceparent_of(self._otel.get_span_context())

    @property
    def trace_id(self) -> str:
        """See :class:`app.traces.Span`."""
        return format(self._otel.get_span_context().trace_id, "032x")

    def __enter__(self) -> Self:
        if self._current:
            self._token = otel_context.attach(set_span_in_context(self._otel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            otel_context.detach(self._token)
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
        if self._otel.is_recording():
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
        self._otel.set_attribute("error.type", error_type)
        if ours:
            self._otel.set_status(Status(StatusCode.ERROR, error_type))


class LiveTraces:
    """Makes spans and sends them. Blocks nobody: sending is done in a thread of its own."""

    def __init__(self, service: str, config: TracesConfig) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sampling_ratio)),
            resource=Resource.create({"service.name": f"baton-{service}", "service.namespace": "baton"}),
            shutdown_on_exit=False,
        )
        logging.getLogger(_EXPORTER).addFilter(_complain_seldom)
        sender = OTLPSpanExporter(config.endpoint, timeout=_TIMEOUT_SECONDS)
        waiting = BatchSpanProcessor(sender, _QUEUED_SPANS, schedule_delay_millis=_EXPORT_MILLISECONDS)
        self._provider.add_span_processor(waiting)
        self._tracer = self._provider.get_tracer("baton")

    def shut_down(self) -> threading.Thread:
        """Send what waits, in a thread, since a collector that is gone may take its time."""
        thread = threading.Thread(target=self._provider.shutdown, name="baton-traces-end", daemon=True)
        thread.start()
        return thread

    def current(self) -> OtelSpan | None:
        """Return the span at work here."""
        span = get_current_span()
        return span if span.get_span_context().is_valid else None

    def of_caller(self, name: str, headers: Carrier) -> LiveSpan:
        """Begin a span below the one that W3C headers name, or a trace of its own where they name none."""
        parent = _PROPAGATOR.extract(headers, Context())
        return LiveSpan(self._tracer.start_span(name, parent, SpanKind.SERVER), current=True)

    def below(self, name: str, parent: OtelSpan, call: bool) -> LiveSpan:
        """Begin a span below ``parent``; ``call``: of a call to another process."""
        kind = SpanKind.CLIENT if call else SpanKind.INTERNAL
        return LiveSpan(self._tracer.start_span(name, set_span_in_context(parent, Context()), kind), current=not call)

    def batch(self, name: str, requests: Sequence[OtelSpan], size: int) -> LiveSpan:
        """Begin the span of work for ``requests`` together, below the first one."""
        links = [Link(span.get_span_context()) for span in requests]
        facts = {"baton.batch.size": size}
        parent = set_span_in_context(requests[0], Context())
        made = self._tracer.start_span(name, parent, attributes=facts, links=links)
        for span in requests[1:]:
            span.add_link(made.get_span_context())
        return LiveSpan(made, current=True)

    def past(self, name: str, parent: OtelSpan, began_ns: int, facts: Facts) -> None:
        """Record a span that ends now."""
        context = set_span_in_context(parent, Context())
        self._tracer.start_span(name, context, attributes=dict(facts), start_time=began_ns).end()


def _complain_seldom(record: logging.LogRecord) -> bool:
    """Let one line a minute through: of a collector that is gone the exporter tells once a second."""
    global _complained
    if time.monotonic() - _complained < _SILENCE_SECONDS:
        return False
    _complained = time.monotonic()
    return True
