"""Metrics through the OpenTelemetry SDK, configured by the standard ``OTEL_*`` variables, beside those
through Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from serve_app.monitoring.metrics import BUCKETS_S, METRICS, Kind, Meter, Metric
from serve_app.monitoring.semantic_names import attributes, metric_name, provider_attributes

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class OtelMeter:
    """The SDK aggregates, and exports in a thread of its own: a dead endpoint costs lines in the log
    there."""

    def __init__(self, exporter: MetricExporter, environment: Mapping[str, str]) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        named = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": "promptly"}
        self._provider = MeterProvider(
            [PeriodicExportingMetricReader(exporter)], resource=Resource.create(named), shutdown_on_exit=False
        )
        meter = self._provider.get_meter("promptly")
        make: dict[Kind, Callable[[Metric], Any]] = {
            Kind.HISTOGRAM: lambda each: meter.create_histogram(
                metric_name(each), "s", each.description, explicit_bucket_boundaries_advisory=BUCKETS_S
            ),
            Kind.COUNTER: lambda each: meter.create_counter(metric_name(each), "1", each.description),
            Kind.GAUGE: lambda each: meter.create_gauge(metric_name(each), "1", each.description),
        }
        self._instruments: dict[Metric, Any] = {each: make[each.kind](each) for each in METRICS}
        self._provider_name = provider_attributes(environment)

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._instruments[metric].record(value, self._attributes(metric, labels))

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        self._instruments[metric].add(number, self._attributes(metric, labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._instruments[metric].set(value, self._attributes(metric, labels))

    def _attributes(self, metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
        return attributes(metric, labels) | self._provider_name

    def shut_down(self) -> None:
        """Export what is left; waits for the endpoint, so never in the event loop."""
        self._provider.shutdown()


class Meters:
    """Every value goes to each of several."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        for each in self._meters:
            each.observe(metric, value, labels)

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        for each in self._meters:
            each.add(metric, number, labels)

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        for each in self._meters:
            each.set(metric, value, labels)


def otel_meter_from(environment: Mapping[str, str]) -> OtelMeter | None:
    """A meter if ``OTEL_METRICS_EXPORTER`` or an OTLP endpoint asks for one, else ``None``.

    Raises:
        ValueError: the exporter is not installed; the message lists those that are.
    """
    name = environment.get("OTEL_METRICS_EXPORTER", "").strip()
    if not name and any(environment.get(variable) for variable in ENDPOINTS):
        name = "otlp"
    if name in {"", "none"} or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return OtelMeter(_exporter("otlp_proto_http" if name == "otlp" else name), environment)


def _exporter(name: str) -> MetricExporter:
    from importlib.metadata import entry_points

    known = {point.name: point for point in entry_points(group="opentelemetry_metrics_exporter")}
    if name not in known:
        raise ValueError(f"OTEL_METRICS_EXPORTER = {name!r}: expected one of {', '.join(sorted(known))}")
    exporter: MetricExporter = known[name].load()()
    return exporter
