"""vLLM's traces go where the gateways' do, by what the installed vLLM reads."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.collector import collecting

from deployments.engine.deployment import llm_config, resolve_on_node
from deployments.engine.start.traces import (
    Seldom,
    held_spans,
    seldom_said,
    trace_arguments,
    trace_environment,
)
from deployments.platform.otlp import OTLP_LOGGERS
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

AS_VLLM_TRACES = f"""
import sys
from vllm.tracing import SpanKind, extract_trace_context, init_tracer, instrument_manual
init_tracer("vllm.llm_engine", sys.argv[1])
context = extract_trace_context({{"traceparent": "00-{TRACE}-{PARENT}-01"}})
instrument_manual("llm_request", 1, attributes={{}}, context=context, kind=SpanKind.SERVER)
"""
"""What its engine does for a request."""


@pytest.mark.parametrize(
    "environment",
    [{}, {BASE: "http://h:4318", "OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console"}],
)
def test_an_engine_traces_only_where_an_otlp_endpoint_is_asked_for(environment: dict[str, str]) -> None:
    assert trace_arguments(environment) == {}
    assert trace_environment(environment) == {}


def test_an_engine_keeps_the_name_of_the_service_and_the_protocol_that_are_set() -> None:
    environment = {BASE: "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SERVICE_NAME": "mine"}
    assert trace_arguments(environment) == {"otlp_traces_endpoint": "http://h:4317"}
    assert trace_environment(environment) == {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}


def test_vllms_own_tracing_reaches_the_endpoint_of_the_gateways() -> None:
    with collecting() as collector:
        environment = {BASE: collector.url}
        ran = subprocess.run(
            [sys.executable, "-c", AS_VLLM_TRACES, trace_arguments(environment)["otlp_traces_endpoint"]],
            env={**os.environ, **environment, **trace_environment(environment)},
            check=False,
            capture_output=True,
            timeout=300,
        )
    assert ran.returncode == 0, ran.stderr.decode()
    (span,) = collector.trace(TRACE)
    assert (span.name, span.parent_span_id.hex()) == ("llm_request", PARENT)


@pytest.mark.parametrize("own", [{}, {"otlp_traces_endpoint": "http://mine:1"}])
def test_the_replicas_own_node_says_where_traces_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, Any]
) -> None:
    model = ModelSettings.model_validate({"id": "m", "source": "o/m", "engine": {"options": own}})
    config = llm_config(model, ModelStore(tmp_path))
    monkeypatch.setenv(BASE, "http://h:4318")
    resolve_on_node(config, model, ModelStore(tmp_path))
    kept = config.get_engine_config()
    assert kept is not None
    expected = own.get("otlp_traces_endpoint", "http://h:4318/v1/traces")
    assert kept.get_initialization_kwargs()["otlp_traces_endpoint"] == expected


def test_a_dead_endpoint_costs_an_engine_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    exporter, processor = logging.getLogger(OTLP_LOGGERS[1]), logging.getLogger(OTLP_LOGGERS[4])
    with seldom_said(Seldom(60.0, lambda: now)):
        for now in (0.0, 1.0, 59.0, 61.0):
            exporter.error("Failed to export spans batch %s", now)
            processor.warning("Queue full, dropping Span.")
    assert [record.getMessage() for record in caplog.records] == [
        "Failed to export spans batch 0.0",
        "Failed to export spans batch 61.0",
    ]


HOLDS_VLLMS_TRACES = f"""
import sys
from vllm.tracing import SpanKind, extract_trace_context, init_tracer, instrument_manual
from deployments.engine.start.traces import held_spans

init_tracer("vllm.llm_engine", sys.argv[1])
instrument_manual("start", 1, attributes={{}})  # vLLM's tracer is older than what holds its spans
held = held_spans()
assert held is not None
for request, flags in ((1, "00"), (2, "00"), (3, "01")):
    parent = f"00-{TRACE}-{{request:016x}}-{{flags}}"
    context = extract_trace_context({{"traceparent": parent}})
    told = {{"gen_ai.latency.time_in_queue": 0.25}}
    instrument_manual("llm_request", 1, attributes=told, context=context, kind=SpanKind.SERVER)
held.send([f"{TRACE}-{{2:016x}}"])
"""


def test_vllms_spans_of_a_kept_request_are_sent_after_all() -> None:
    with collecting() as collector:
        environment = {BASE: collector.url}
        ran = subprocess.run(
            [sys.executable, "-c", HOLDS_VLLMS_TRACES, f"{collector.url}/v1/traces"],
            env={**os.environ, **environment, **trace_environment(environment)},
            check=False,
            capture_output=True,
            timeout=300,
        )
    assert ran.returncode == 0, ran.stderr.decode()
    found = {span.parent_span_id.hex(): span for span in collector.trace(TRACE)}
    assert sorted(found) == [f"{2:016x}", f"{3:016x}"], "the first was left out, and no one kept it"
    kept = {each.key: each.value.double_value for each in found[f"{2:016x}"].attributes}
    assert kept["gen_ai.latency.time_in_queue"] == 0.25


def test_an_engine_that_does_not_trace_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    assert held_spans() is None
