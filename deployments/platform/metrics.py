"""Metrics through Ray: its dashboard and its Prometheus page have them beside Ray's, Serve's and vLLM's
own."""

from __future__ import annotations

from collections.abc import Mapping

from ray.util import metrics as ray_metrics

from serve_app.monitoring.metrics import BUCKETS_S, METRICS, Kind, Metric


class RayMeter:
    """Makes every metric at once, so that the page has all names before the first request. A value costs one
    or two microseconds; Ray's agent collects them in its own time."""

    def __init__(self) -> None:
        self._histograms = {
            each: ray_metrics.Histogram(
                each.name,
                description=each.description,
                boundaries=list(BUCKETS_S),
                tag_keys=each.labels,
            )
            for each in METRICS
            if each.kind is Kind.HISTOGRAM
        }
        self._counters = {
            each: ray_metrics.Counter(each.name, description=each.description, tag_keys=each.labels)
            for each in METRICS
            if each.kind is Kind.COUNTER
        }
        self._gauges = {
            each: ray_metrics.Gauge(each.name, description=each.description, tag_keys=each.labels)
            for each in METRICS
            if each.kind is Kind.GAUGE
        }

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        self._histograms[metric].observe(value, dict(labels))

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        self._counters[metric].inc(number, dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._gauges[metric].set(value, dict(labels))
