"""Exporters by the standard variables, and what is said of an endpoint that is dead, slow, or back."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.collector import collecting
from support.graph import eventually
from support.records import a_record

from deployments.launcher.ports import free_port
from deployments.platform.otel_metrics import otel_meter_from
from deployments.platform.otlp import METRICS, SHUT_DOWN_S, TRACES, endpoint, exporter_names, protocol
from deployments.platform.telemetry import RequestTracer, tracer_from_environment
from serve_app.monitoring.metrics import REQUESTS
from serve_app.request.timing import Timeline
from serve_app.settings import TraceSettings

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp, console,otlp"}, ["otlp", "console"]),
        ({"OTEL_TRACES_EXPORTER": "none", BASE: "http://h:1"}, []),
        ({BASE: "http://h:1"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:1"}, []),
        ({BASE: "http://h:1", "OTEL_SDK_DISABLED": "True"}, []),
    ],
)
def test_exporters_are_named_as_the_standard_says(environment: dict[str, str], names: list[str]) -> None:
    assert exporter_names(environment, TRACES) == names


@pytest.mark.parametrize(
    ("environment", "spoken", "url"),
    [
        ({BASE: "http://h:1/"}, "http/protobuf", "http://h:1/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h:1/x"}, "http/protobuf", "http://h:1/x"),
        ({}, "http/protobuf", "http://localhost:4318/v1/traces"),
        ({BASE: "http://h:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", "http://h:1"),
    ],
)
def test_an_endpoint_is_that_of_its_signal(environment: dict[str, str], spoken: str, url: str) -> None:
    assert (protocol(environment, TRACES), endpoint(environment, TRACES)) == (spoken, url)


def test_a_reader_that_starts_a_server_is_no_exporter() -> None:
    with pytest.raises(ValueError, match="'prometheus': expected one of console, otlp"):
        otel_meter_from({"OTEL_METRICS_EXPORTER": "prometheus"})


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Every line of any logger, as it comes."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}{record.exc_text or ''}")

    keep, loggers = Keep(), (logging.getLogger(), logging.getLogger("ray.serve"))
    for each in loggers:
        each.addHandler(keep)
    yield lines
    for each in loggers:
        each.removeHandler(keep)


@contextmanager
def tracing(monkeypatch: pytest.MonkeyPatch, url: str, timeout_s: float = 1.0) -> Iterator[RequestTracer]:
    environment = {
        BASE: url,
        "OTEL_EXPORTER_OTLP_TIMEOUT": str(timeout_s),
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracer = tracer_from_environment(environment, TraceSettings())
    assert tracer is not None
    try:
        yield tracer
    finally:
        tracer.shut_down()


def trace(tracer: RequestTracer) -> None:
    timeline = Timeline(time.monotonic_ns, time.time_ns())
    with timeline.step("admit"):
        pass
    tracer.finish(tracer.start("POST", {}, timeline.unix_ns), timeline, a_record())
    tracer.flush()


async def until(check: Callable[[], bool]) -> None:
    async def so() -> bool:
        return check()

    assert await eventually(so, within_s=30)


def of_traces(lines: list[str]) -> list[str]:
    return [line for line in lines if "traces" in line or "opentelemetry" in line]


async def test_a_closed_port_costs_one_line_and_its_return_another(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    port = free_port()
    with tracing(monkeypatch, f"http://user:secret@127.0.0.1:{port}") as tracer:
        trace(tracer)
        await until(lambda: bool(of_traces(said)))
        for _ in range(200):  # more than the queue has room for
            trace(tracer)
        (began,) = of_traces(said)
        with collecting(port) as collector:

            async def is_back() -> bool:
                trace(tracer)
                return bool(collector.spans) and len(of_traces(said)) > 1

            assert await eventually(is_back, within_s=30)
    ended = of_traces(said)[
        1
    ]  # a busy machine may miss the time-out of a later export: that has its own line
    assert began.startswith(f"ray.serve: traces do not reach http://127.0.0.1:{port} and are dropped until")
    assert f"traces reach http://127.0.0.1:{port} again" in ended
    assert "secret" not in began + ended


async def test_an_endpoint_that_never_answers_costs_one_line_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with tracing(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3) as tracer:
            for _ in range(200):
                trace(tracer)
            await until(lambda: bool(of_traces(said)))
            for _ in range(200):
                trace(tracer)
            began = time.monotonic()
        assert time.monotonic() - began < SHUT_DOWN_S + 10, "a dead endpoint does not hold the end up"
    (line,) = of_traces(said)
    assert "traces do not reach" in line
    assert len(threading.enumerate()) < 50


async def test_metrics_say_the_same_of_an_endpoint_that_refuses_them(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    with collecting() as collector:
        collector.status = 500
        environment = {BASE: collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "20"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        meter = otel_meter_from(environment)
        assert meter is not None
        meter.add(REQUESTS, 1, {"model": "m", "outcome": "answered"})
        await until(lambda: collector.asked >= 5)
        collector.status = 200
        await until(lambda: len(said) == 2)
        meter.shut_down()
    assert said[0].startswith(f"ray.serve: {METRICS} do not reach {collector.url} and are dropped")
    assert "code: 500" in said[0]
    assert said[1].startswith(f"ray.serve: {METRICS} reach {collector.url} again; ")
    assert len(said) == 2
