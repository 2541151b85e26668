"""Traces through the OpenTelemetry SDK, configured by the standard ``OTEL_*`` variables.

Nothing is set up, imported or called per request unless an exporter is configured: with tracing off, the cost
is one ``is None`` check.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from deployments.platform.otlp import TRACES, ended, exporter_names, exporters, watched
from serve_app.monitoring.kept_traces import KeptTraces, span_key
from serve_app.monitoring.semantic_names import (
    KEPT,
    error_type,
    is_failure,
    provider_attributes,
    span_attributes,
    span_name,
)
from serve_app.request.record import RequestRecord, shortened
from serve_app.request.timing import Timeline
from serve_app.settings.traces import TraceSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context as SpanContextMap
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanContext, Tracer

    from deployments.platform.held_spans import HeldSpans

DEFAULT_SERVICE_NAME = "promptly"

DELAY_S = 0.1

MOST_WAITING = 1024
"""Requests whose spans are to be made; the oldest of more have none. A request's take about 0.3 ms."""

TRACEPARENT: ContextVar[str | None] = ContextVar("promptly_traceparent", default=None)
"""The W3C ``traceparent`` of the request's span, for calls of the gateway's own deployments. Tasks inherit it
from the task that started them."""


class RequestSpan(msgspec.Struct, frozen=True):
    """A request's span while it runs. ``parent``: the caller's context, ``traceparent`` its own."""

    span: Any
    parent: Any
    start_ns: int
    traceparent: str


class _Ended(msgspec.Struct, frozen=True):
    """A request whose spans are to be made. ``end_ns``: Unix nanoseconds; ``kept``: why, if the head's
    sampling left it out."""

    started: RequestSpan
    timeline: Timeline
    record: RequestRecord
    end_ns: int
    kept: str | None


class Tracing:
    """The SDK's provider with the configured exporters; each sends in a thread of its own, from a bounded
    queue (``OTEL_BSP_MAX_QUEUE_SIZE``, 2,048 spans)."""

    def __init__(self, made: Sequence[SpanExporter], environment: Mapping[str, str]) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from deployments.platform.kept_spans import KeptOr, SameIds

        named = {} if "OTEL_SERVICE_NAME" in environment else {SERVICE_NAME: DEFAULT_SERVICE_NAME}
        self.ids = SameIds()
        self._provider = TracerProvider(
            resource=Resource.create(named), shutdown_on_exit=False, id_generator=self.ids
        )
        self._provider.sampler = KeptOr(self._provider.sampler)
        self._watches = watched(TRACES, made, environment)
        self._processors = [BatchSpanProcessor(each) for each in made]
        for each in self._processors:
            self._provider.add_span_processor(each)
        self.propagator = TraceContextTextMapPropagator()

    @cached_property
    def tracer(self) -> Tracer:
        """It keeps the sampler of the time when it was made."""
        return self._provider.get_tracer("promptly")

    def hold(self) -> HeldSpans:
        """From now on what the sampler leaves out is held. Before the first use of ``tracer``."""
        from deployments.platform.held_spans import HeldSpans, RecordAll

        held = HeldSpans(self._processors)
        self._provider.sampler = RecordAll(self._provider.sampler)
        self._provider.add_span_processor(held)
        return held

    def shut_down(self) -> None:
        """Export the remaining spans, within a few seconds. Never in the event loop."""
        ended(self._provider.shutdown, self._watches)


class RequestTracer:
    """One trace per request: a server span, and a child span for each step of its timeline.

    The child spans are made when the request has ended, from the times in the timeline, so nothing is done
    per token. A request that the sampler leaves out has ids only, until its end says that it is kept.
    """

    def __init__(
        self,
        tracing: Tracing,
        kept: KeptTraces,
        provider: Mapping[str, str],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """``provider``: attributes that name this application; ``tell`` is called with the ``span_key`` of
        each request that is kept although the head's sampling left it out."""
        self._tracing = tracing
        self._tell = tell
        self._tracer = tracing.tracer
        self._kept = kept
        self._provider = dict(provider)
        self._waiting: deque[_Ended] = deque(maxlen=MOST_WAITING)
        self._timer: asyncio.TimerHandle | None = None

    def start(self, name: str, headers: Mapping[str, str], start_ns: int) -> RequestSpan:
        """The request's span, a child of the caller's ``traceparent`` if there is one."""
        from opentelemetry.trace import SpanKind

        parent = self._tracing.propagator.extract(headers)
        span = self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, start_time=start_ns)
        return RequestSpan(span, parent, start_ns, _traceparent(span.get_span_context()))

    def inject(self, started: RequestSpan, headers: dict[str, str]) -> None:
        """Add ``traceparent`` for the engine, so that its spans join the trace."""
        from opentelemetry.trace import set_span_in_context

        self._tracing.propagator.inject(headers, context=set_span_in_context(started.span))

    def trace_id(self, started: RequestSpan) -> str:
        return format(started.span.get_span_context().trace_id, "032x")

    def finish(self, started: RequestSpan, timeline: Timeline, record: RequestRecord) -> None:
        """The request has ended. Its spans are made a moment later, as many streams often end together, and
        the next requests arrive just then."""
        now = timeline.clock()
        reason = self._kept.reason(record, now / 1e9)
        context = started.span.get_span_context()
        if not context.trace_flags.sampled and reason is None:
            return
        kept = None if context.trace_flags.sampled else reason
        if kept is not None and self._tell is not None:
            self._tell(span_key(context.trace_id, context.span_id))
        self._waiting.append(_Ended(started, timeline, record, timeline.at_unix_ns(now), kept))
        if self._timer is None:
            self._make_later(DELAY_S)

    def flush(self) -> None:
        """Make the spans that wait. In the event loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._make(self._waiting.popleft())

    def shut_down(self) -> None:
        """After :meth:`flush`. Never in the event loop."""
        self._tracing.shut_down()

    def _make_later(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, self._make_one, context=Context())

    def _make_one(self) -> None:
        self._timer = None
        try:
            if self._waiting:
                self._make(self._waiting.popleft())
        finally:
            if self._waiting:
                self._make_later(0)

    def _make(self, ended_request: _Ended) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        from deployments.platform.kept_spans import as_kept

        started, timeline, record = (
            ended_request.started,
            ended_request.timeline,
            shortened(ended_request.record),
        )
        span, context = started.span, None
        if ended_request.kept is not None:
            span, context = self._again(started), as_kept(None)
            span.set_attribute(KEPT, ended_request.kept)
        span.update_name(span_name(record))
        span.set_attributes(span_attributes(record))
        if record.model is not None:
            span.set_attributes(self._provider)
        if is_failure(record):
            span.set_status(Status(StatusCode.ERROR, error_type(record)))
        context = set_span_in_context(span, context)
        for step in timeline.steps:
            began, ended_at = timeline.at_unix_ns(step.start_ns), timeline.at_unix_ns(step.end_ns)
            self._tracer.start_span(step.name, context=context, start_time=began).end(ended_at)
        span.end(ended_request.end_ns)

    def _again(self, started: RequestSpan) -> Span:
        """The span with the same ids, now recorded."""
        from opentelemetry.trace import SpanKind

        from deployments.platform.kept_spans import as_kept

        context: SpanContextMap = as_kept(started.parent)
        with self._tracing.ids.of(started.span.get_span_context()):
            return self._tracer.start_span(
                "kept", context=context, kind=SpanKind.SERVER, start_time=started.start_ns
            )


class CallTracer:
    """A span for each call that a gateway makes of a deployment, as a child of the request's. One that the
    head's sampling left out is held until its gateway says that the trace is kept."""

    def __init__(self, tracing: Tracing, deployment: str) -> None:
        self._tracing = tracing
        self._deployment = deployment
        self._held = tracing.hold()

    def send_held(self, keys: Iterable[str]) -> None:
        """These requests are kept."""
        self._held.send(keys)

    @contextmanager
    def span(self, method: str, traceparent: str) -> Iterator[None]:
        """Around the call; an error that it raises is the span's."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        parent = self._tracing.propagator.extract({"traceparent": traceparent})
        span = self._tracing.tracer.start_span(
            f"{self._deployment}.{method}", context=parent, kind=SpanKind.SERVER, start_time=time.time_ns()
        )
        try:
            yield
        except BaseException as error:
            # No text of the error: it may name what was asked.
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def shut_down(self) -> None:
        self._tracing.shut_down()


def tracer_from_environment(
    environment: Mapping[str, str],
    settings: TraceSettings | None = None,
    tell: Callable[[str], None] | None = None,
) -> RequestTracer | None:
    """A tracer if ``OTEL_TRACES_EXPORTER`` or an OTLP endpoint names an exporter, else ``None``.

    Raises:
        ValueError: the exporter is not installed; the message lists those that are.
    """
    tracing = _tracing(environment)
    if tracing is None:
        return None
    kept = KeptTraces(settings or TraceSettings())
    return RequestTracer(tracing, kept, provider_attributes(environment), tell)


def call_tracer(deployment: str, environment: Mapping[str, str] = os.environ) -> CallTracer | None:
    """The tracer of this process's calls; ``None`` where nothing is traced. Raises: as above."""
    tracing = _tracing(environment)
    return None if tracing is None else CallTracer(tracing, deployment)


def _tracing(environment: Mapping[str, str]) -> Tracing | None:
    if not exporter_names(environment, TRACES):
        return None
    from opentelemetry.sdk.trace.export import SpanExporter

    return Tracing(exporters(environment, TRACES, SpanExporter), environment)


def _traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
