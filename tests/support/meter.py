"""Keeps the values of metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from serve_app.monitoring.metrics import Metric

Labels = tuple[str, ...]


class Meter:
    """By metric and the values of its labels: ``values`` of counters and gauges, ``observed`` by
    histograms."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {}
        self.observed: dict[str, dict[Labels, list[float]]] = {}

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        found = self.observed.setdefault(metric.name, defaultdict(list))
        found[_values(metric, labels)].append(value)

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        assert number > 0
        found, key = self.values.setdefault(metric.name, {}), _values(metric, labels)
        found[key] = found.get(key, 0) + number

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.values.setdefault(metric.name, {})[_values(metric, labels)] = value

    @property
    def labels(self) -> dict[str, set[Labels]]:
        """All that were used."""
        every = [*self.values.items(), *self.observed.items()]
        return {name: set(values) for name, values in every}


def _values(metric: Metric, labels: Mapping[str, str]) -> Labels:
    assert tuple(labels) == metric.labels, "a metric has all of its labels, in order"
    return tuple(labels.values())
