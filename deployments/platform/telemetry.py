"""Traces through the OpenTelemetry SDK, configured by the standard ``OTEL_*`` variables.

Nothing is set up, imported or called per request unless an exporter is configured: with tracing off, the cost
is one ``is None`` check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from serve_app.request.record import RequestRecord
from serve_app.request.timing import Timeline

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

DEFAULT_SERVICE_NAME = "promptly"
OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class RequestTracer:
    """One trace per request: a server span, and a child span for each step of its timeline.

    The child spans are made when the request has ended, from the times in the timeline, so nothing is done
    per token.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=Resource.create(_default_name(SERVICE_NAME)))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("promptly")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, name: str, headers: Mapping[str, str], start_ns: int) -> Any:
        """The request's span, a child of the caller's ``traceparent`` if there is one."""
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(headers)
        return self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, start_time=start_ns)

    def inject(self, span: Any, headers: dict[str, str]) -> None:
        """Add ``traceparent`` for the engine, so that its spans join the trace."""
        from opentelemetry.trace import set_span_in_context

        self._propagator.inject(headers, context=set_span_in_context(span))

    def trace_id(self, span: Any) -> str:
        return format(span.get_span_context().trace_id, "032x")

    def finish(self, span: Any, timeline: Timeline, record: RequestRecord) -> None:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(span)
        for step in timeline.steps:
            began, ended = timeline.at_unix_ns(step.start_ns), timeline.at_unix_ns(step.end_ns)
            self._tracer.start_span(step.name, context=context, start_time=began).end(ended)
        span.set_attributes(_attributes(record))
        span.end(timeline.at_unix_ns(timeline.clock()))

    def shut_down(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


def tracer_from_environment(environment: Mapping[str, str]) -> RequestTracer | None:
    """A tracer if ``OTEL_TRACES_EXPORTER`` or an OTLP endpoint names an exporter, else ``None``.

    Raises:
        ValueError: the exporter is not installed; the message lists those that are.
    """
    name = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if not name and any(environment.get(variable) for variable in OTLP_ENDPOINTS):
        name = "otlp"
    if name in {"", "none"} or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return RequestTracer(_exporter("otlp_proto_http" if name == "otlp" else name))


def _attributes(record: RequestRecord) -> dict[str, str | int | float]:
    known = {
        "promptly.tenant": record.tenant,
        "promptly.cache": record.cache,
        "gen_ai.request.model": record.model,
        "http.response.status_code": record.status,
        "promptly.client_gone": 1 if record.client_gone else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _exporter(name: str) -> SpanExporter:
    """Exporters register themselves under the SDK's own entry point group."""
    from importlib.metadata import entry_points

    known = {point.name: point for point in entry_points(group="opentelemetry_traces_exporter")}
    if name not in known:
        raise ValueError(f"OTEL_TRACES_EXPORTER = {name!r}: expected one of {', '.join(sorted(known))}")
    exporter: SpanExporter = known[name].load()()
    return exporter


def _default_name(attribute: str) -> dict[str, str]:
    import os

    return {} if "OTEL_SERVICE_NAME" in os.environ else {attribute: DEFAULT_SERVICE_NAME}
