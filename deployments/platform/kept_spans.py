"""Spans that are recorded after all: through the SDK's public interfaces, a sampler and a generator of ids.

Imported only where there are traces: it imports the SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context, get_value, set_value
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanContext

KEPT_KEY = "promptly-kept"


class KeptOr(Sampler):
    """What is marked is recorded; of all else the head decides."""

    def __init__(self, head: Sampler) -> None:
        self._head = head

    def should_sample(self, parent_context: Context | None, *args: Any, **options: Any) -> SamplingResult:
        result = self._head.should_sample(parent_context, *args, **options)
        if parent_context is not None and get_value(KEPT_KEY, parent_context):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, result.attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        return f"KeptOr{{{self._head.get_description()}}}"


class SameIds(RandomIdGenerator):
    """Random ids, except for a span that is made again. For one thread."""

    def __init__(self) -> None:
        self._next: SpanContext | None = None

    @contextmanager
    def of(self, known: SpanContext) -> Iterator[None]:
        """The span that is made inside has these ids."""
        self._next = known
        try:
            yield
        finally:
            self._next = None

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self._next is None else self._next.span_id

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self._next is None else self._next.trace_id


def as_kept(context: Context | None) -> Context:
    """The context, marked: what is started in it is recorded."""
    return set_value(KEPT_KEY, True, context)
