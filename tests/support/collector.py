"""A collector of traces and metrics: OTLP over HTTP, kept in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Every span and every metric received so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.status = 200
        """What it answers; nothing is kept of what it refuses."""
        self.asked = 0

    def trace(self, trace_id: str) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace_id]


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.asked += 1
            if collector.status != 200:
                pass
            elif self.path.endswith("/v1/metrics"):
                for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for part in group.scope_metrics:
                        collector.metrics |= {metric.name: metric for metric in part.metrics}
            else:
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
