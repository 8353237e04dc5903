"""A small OpenTelemetry collector: takes OTLP over HTTP, decodes the real protobuf, keeps the spans."""

import gzip
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True)
class Seen:
    """A span as the collector got it; ids are hexadecimal."""

    name: str
    kind: str
    service: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict
    events: tuple[str, ...]
    failed: bool
    start: int
    end: int


class Collector:
    """Listens on a port of this machine; ``spans`` is what came so far."""

    def __init__(self):
        self.spans: list[Seen] = []
        self.raw: list[bytes] = []
        kept = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                kept.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_seen(span, service) for span in scope.spans]

    def of_trace(self, trace: str) -> list[Seen]:
        return [span for span in list(self.spans) if span.trace == trace]

    def wait_for(self, trace: str, names: set, seconds: float = 30) -> list[Seen]:
        """Return the trace's spans once all of ``names`` are among them: names, or names with kinds.

        Processes send on their own, each in the order in which its spans ended.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.of_trace(trace)
            missing = names - {span.name for span in found} - {(span.name, span.kind) for span in found}
            if not missing:
                return found
            time.sleep(0.1)
        raise AssertionError(f"after {seconds} s these had not come: {missing}")


def _seen(span, service: str) -> Seen:
    return Seen(
        name=span.name,
        kind=KINDS.get(span.kind, str(span.kind)),
        service=service,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        attributes=_attributes(span.attributes),
        events=tuple(event.name for event in span.events),
        failed=span.status.code == 2,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


def _attributes(pairs) -> dict:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value):
    kind = value.WhichOneof("value")
    found = getattr(value, kind) if kind else None
    return [_value(part) for part in found.values] if kind == "array_value" else found
