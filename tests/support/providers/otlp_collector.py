"""A collector of OpenTelemetry on the loopback interface, which keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class CollectedSpan:
    """A span as it arrived."""

    name: str
    span_id: bytes
    parent_id: bytes
    trace_id: bytes
    attributes: dict[str, Any]
    is_error: bool
    seconds: float


@dataclass
class Collector:
    """What has arrived: spans in the order of their ends, and the names of metrics with their labels."""

    url: str
    spans: list[CollectedSpan] = field(default_factory=list[CollectedSpan])
    metrics: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    bounds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """The upper bounds of the buckets of each histogram."""
    service: dict[str, Any] = field(default_factory=dict[str, Any])
    raw: list[bytes] = field(default_factory=list[bytes])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def named(self, name: str) -> CollectedSpan:
        """Return the only span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def take(self, path: str, body: bytes) -> None:
        """Keep one request."""
        self.raw.append(body)
        if path.endswith("/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.service = _decode(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.spans += [_decode_span(span) for span in scope.spans]
        else:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        points = (*metric.histogram.data_points, *metric.sum.data_points)
                        for point in metric.histogram.data_points:
                            self.bounds[metric.name] = list(point.explicit_bounds)
                        self.metrics[metric.name] = [_decode(point.attributes) for point in points]


@contextmanager
def otlp_collector() -> Generator[Collector, None, None]:
    """Run a collector; stop it on leaving."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.take(self.path, gzip.decompress(body) if is_packed else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _decode_span(span: Any) -> CollectedSpan:
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    attributes = _decode(span.attributes)
    return CollectedSpan(
        span.name, span.span_id, span.parent_span_id, span.trace_id, attributes, span.status.code == 2, seconds
    )


def _decode(attributes: Any) -> dict[str, Any]:
    return {one.key: _decode_value(one.value) for one in attributes}


def _decode_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_decode_value(item) for item in value.array_value.values]
    return getattr(value, kind)
