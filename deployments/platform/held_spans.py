"""Spans that the head's sampling left out, held for a while: only at a request's end its gateway knows
whether its trace is kept, and then tells the deployments that worked on it.

Imported only where there are traces: it imports the SDK.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanContext, TraceFlags

from serve_app.monitoring.kept_traces import span_key

MOST_HELD = 8192
"""Spans of one process, about 1 kB each; the oldest go first."""

MOST_TOLD = 1024
"""Requests whose later spans are sent, too."""


class RecordAll(Sampler):
    """What the head leaves out is recorded all the same, but not marked as sampled."""

    def __init__(self, head: Sampler) -> None:
        self._head = head

    def should_sample(self, parent_context: Context | None, *args: Any, **options: Any) -> SamplingResult:
        result = self._head.should_sample(parent_context, *args, **options)
        if result.decision is Decision.DROP:
            return SamplingResult(Decision.RECORD_ONLY, result.attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        return f"RecordAll{{{self._head.get_description()}}}"


class HeldSpans(SpanProcessor):
    """Holds the newest spans that are recorded, but not sampled, by their parent: the gateway's span of the
    request. Its trace would be too much, as all requests of an agent may be one. For any thread."""

    def __init__(self, to: Sequence[SpanProcessor], most: int = MOST_HELD) -> None:
        """``to``: what exports."""
        self._to = tuple(to)
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[str, list[ReadableSpan]] = OrderedDict()
        self._count = 0
        self._told: OrderedDict[str, None] = OrderedDict()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or span.context.trace_flags.sampled or span.parent is None:
            return
        key = span_key(span.parent.trace_id, span.parent.span_id)
        with self._lock:
            is_told = key in self._told
            if not is_told:
                self._hold(key, span)
        if is_told:
            self._send([span])

    def send(self, keys: Iterable[str]) -> None:
        """Send the spans below these, and those that end later."""
        for key in keys:
            with self._lock:
                found = self._held.pop(key, [])
                self._count -= len(found)
                self._told[key] = None
                while len(self._told) > MOST_TOLD:
                    self._told.popitem(last=False)
            self._send(found)

    def shutdown(self) -> None:
        for each in self._to:
            each.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return all(each.force_flush(timeout_millis) for each in self._to)

    def _hold(self, key: str, span: ReadableSpan) -> None:
        self._held.setdefault(key, []).append(span)
        self._count += 1
        while self._count > self._most:
            _, oldest = self._held.popitem(last=False)
            self._count -= len(oldest)

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        for span in map(_as_sampled, spans):
            for each in self._to:
                each.on_end(span)


def _as_sampled(span: ReadableSpan) -> ReadableSpan:
    context = span.context
    assert context is not None
    flags = TraceFlags(context.trace_flags | TraceFlags.SAMPLED)
    return ReadableSpan(
        name=span.name,
        context=SpanContext(context.trace_id, context.span_id, context.is_remote, flags, context.trace_state),
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
