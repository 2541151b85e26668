"""Tracing is off unless an exporter is named; then it is the SDK's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deployments.platform.telemetry import RequestTracer, tracer_from_environment


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
def test_nothing_is_traced_unless_an_exporter_is_named(environment: dict[str, str]) -> None:
    assert tracer_from_environment(environment) is None


def test_an_exporter_is_found_by_its_standard_name() -> None:
    tracer = tracer_from_environment({"OTEL_TRACES_EXPORTER": "console"})
    assert isinstance(tracer, RequestTracer)
    tracer.shut_down()


def test_an_unknown_exporter_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'carrier-pigeon'.*console"):
        tracer_from_environment({"OTEL_TRACES_EXPORTER": "carrier-pigeon"})


def test_a_gateway_without_tracing_does_not_import_the_sdk() -> None:
    code = (
        "import sys; from deployments.platform.telemetry import tracer_from_environment;"
        "tracer_from_environment({});"
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
