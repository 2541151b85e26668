"""vLLM's own traces, where the gateways' go: its spans join the trace of the request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from deployments.platform.log_filters import filtered
from deployments.platform.otlp import OTLP_LOGGERS, TRACES, endpoint, exporter_names, protocol

SERVICE_NAME = "promptly-engine"

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
    """For vLLM's processes. Its default is gRPC, and it reads the variable of the traces only."""
    if "otlp" not in exporter_names(environment, TRACES):
        return {}
    found = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": protocol(environment, TRACES)}
    return found if "OTEL_SERVICE_NAME" in environment else found | {"OTEL_SERVICE_NAME": SERVICE_NAME}


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
