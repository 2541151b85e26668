"""vLLM's own traces, where the gateways' go: its spans join the trace of the request."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from deployments.platform.log_filters import filtered
from deployments.platform.otlp import OTLP_LOGGERS, TRACES, endpoint, exporter_names, exporters, protocol

if TYPE_CHECKING:
    from deployments.platform.held_spans import HeldSpans

SERVICE_NAME = "promptly-engine"

VLLM_TRACER = "vllm.tracing.otel"
"""The name under which vLLM 0.29 makes its spans of requests; the provider has one tracer of a name."""

SAID_EVERY_S = 600.0
"""vLLM owns its exporter, which logs every failed export: one line in this time is enough."""


def trace_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """vLLM's arguments. Empty where no OTLP endpoint is asked for, or vLLM cannot trace: it would refuse to
    start. Imports vLLM only where one is asked for."""
    if "otlp" not in exporter_names(environment, TRACES):
        return {}
    from vllm.tracing import is_tracing_available

    if not is_tracing_available():
        return {}
    return {"otlp_traces_endpoint": endpoint(environment, TRACES)}


def trace_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for vLLM's processes. Its default is gRPC, and it reads the variable of the traces only."""
    if "otlp" not in exporter_names(environment, TRACES):
        return {}
    found = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": protocol(environment, TRACES)}
    return found if "OTEL_SERVICE_NAME" in environment else found | {"OTEL_SERVICE_NAME": SERVICE_NAME}


def held_spans() -> HeldSpans | None:
    """From now on vLLM's spans that the sampling leaves out are held, until a gateway keeps their request.
    ``None`` where vLLM does not trace. After vLLM's start, which makes its provider of spans and names the
    endpoint in this process's environment; before its first request."""
    if "otlp" not in exporter_names(os.environ, TRACES):
        return None
    from opentelemetry.sdk.trace import Tracer, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.trace import get_tracer_provider

    from deployments.platform.held_spans import HeldSpans, RecordAll

    provider = get_tracer_provider()
    tracer = provider.get_tracer(VLLM_TRACER)
    if not isinstance(provider, TracerProvider) or not isinstance(tracer, Tracer):
        return None
    # vLLM's own exporter is not to be had: a second one sends what was held.
    only_otlp = {**os.environ, "OTEL_TRACES_EXPORTER": "otlp"}
    held = HeldSpans([BatchSpanProcessor(each) for each in exporters(only_otlp, TRACES, SpanExporter)])
    tracer.sampler = RecordAll(tracer.sampler)
    provider.add_span_processor(held)
    return held


class Seldom(logging.Filter):
    """Lets a line of the exporter through, and then none for a while."""

    def __init__(self, every_s: float = SAID_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True


def seldom_said(seldom: Seldom | None = None) -> AbstractContextManager[None]:
    """While this is open, a dead endpoint costs this process a line now and then."""
    return filtered(OTLP_LOGGERS, seldom or Seldom())
