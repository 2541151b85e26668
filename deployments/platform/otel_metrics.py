"""Metrics through the OpenTelemetry SDK, configured by the standard ``OTEL_*`` variables, beside those
through Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deployments.platform.otlp import METRICS as METRICS_SIGNAL
from deployments.platform.otlp import ended, exporter_names, exporters, watched
from serve_app.monitoring.metrics import BUCKETS_S, METRICS, Kind, Meter, Metric
from serve_app.monitoring.semantic_names import attributes, metric_name, provider_attributes

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

UNITS = {"_seconds": "s", "_bytes": "By"}
"""Units by the end of a metric's name; all others are plain numbers."""


class OtelMeter:
    """The SDK aggregates, and exports in a thread of its own: a dead endpoint costs one line in the log."""

    def __init__(self, made: Sequence[MetricExporter], environment: Mapping[str, str]) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        named = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": "promptly"}
        self._watches = watched(METRICS_SIGNAL, made, environment)
        self._provider = MeterProvider(
            [PeriodicExportingMetricReader(each) for each in made],
            resource=Resource.create(named),
            shutdown_on_exit=False,
        )
        meter = self._provider.get_meter("promptly")
        make: dict[Kind, Callable[[Metric], Any]] = {
            Kind.HISTOGRAM: lambda each: meter.create_histogram(
                metric_name(each),
                _unit(each),
                each.description,
                explicit_bucket_boundaries_advisory=BUCKETS_S,
            ),
            Kind.COUNTER: lambda each: meter.create_counter(metric_name(each), _unit(each), each.description),
            Kind.GAUGE: lambda each: meter.create_gauge(metric_name(each), _unit(each), each.description),
        }
        self._instruments: dict[Metric, Any] = {each: make[each.kind](each) for each in METRICS}
        self._provider_name = provider_attributes(environment)

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        self._instruments[metric].record(value, self._attributes(metric, labels, operation))

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        self._instruments[metric].add(number, self._attributes(metric, labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._instruments[metric].set(value, self._attributes(metric, labels))

    def _attributes(self, metric: Metric, labels: Mapping[str, str], operation: str = "") -> dict[str, str]:
        return attributes(metric, labels, operation) | self._provider_name

    def shut_down(self) -> None:
        """Export what is left, within a few seconds. Never in the event loop."""
        ended(self._provider.shutdown, self._watches)


class Meters:
    """Every value goes to each of several."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        for each in self._meters:
            each.observe(metric, value, labels, operation)

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        for each in self._meters:
            each.add(metric, number, labels)

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        for each in self._meters:
            each.set(metric, value, labels)


def _unit(metric: Metric) -> str:
    return next((unit for end, unit in UNITS.items() if metric.name.endswith(end)), "1")


def otel_meter_from(environment: Mapping[str, str]) -> OtelMeter | None:
    """A meter if ``OTEL_METRICS_EXPORTER`` or an OTLP endpoint asks for one, else ``None``.

    Raises:
        ValueError: the exporter is not installed; the message lists those that are.
    """
    if not exporter_names(environment, METRICS_SIGNAL):
        return None
    from opentelemetry.sdk.metrics.export import MetricExporter

    return OtelMeter(exporters(environment, METRICS_SIGNAL, MetricExporter), environment)
