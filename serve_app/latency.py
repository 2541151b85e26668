"""Sliding windows of latencies, for ``/admin/latency``."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.request.record import LASTING, RequestRecord

WINDOW_SAMPLES = 2048
"""Enough for about 20 samples above the p99; a window takes 16 KiB."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Milliseconds over one window; ``count`` is the number of samples in it."""

    count: int
    p50: float
    p95: float
    p99: float


def percentile(ordered: list[float], share: float) -> float:
    """Nearest-rank percentile of an ascending list; ``share`` in (0, 1]."""
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


class LatencyWindows:
    """The newest samples of each named series."""

    def __init__(self, samples: int = WINDOW_SAMPLES) -> None:
        self._samples = samples
        self._series: dict[str, deque[float]] = {}

    def record(self, series: str, milliseconds: float) -> None:
        window = self._series.get(series)
        if window is None:
            window = self._series[series] = deque(maxlen=self._samples)
        window.append(milliseconds)

    def take(self, record: RequestRecord) -> None:
        """The steps of a finished request, and its whole time if it had any. A WebSocket lasts as long as its
        client speaks, so its times say nothing."""
        if record.endpoint == LASTING:
            return
        for step in record.steps:
            self.record(step.name, step.duration_ms)
        if record.steps:
            self.record("total", record.total_ms)

    def samples(self) -> dict[str, list[float]]:
        """Copies, for :func:`summaries` in another thread."""
        return {name: list(window) for name, window in self._series.items()}


def summaries(samples: Mapping[str, list[float]]) -> dict[str, LatencySummary]:
    """A summary of each series; it takes milliseconds for all of them."""
    return {name: _summarise(sorted(window)) for name, window in samples.items()}


def _summarise(ordered: list[float]) -> LatencySummary:
    p50, p95, p99 = (round(percentile(ordered, share), 3) for share in (0.50, 0.95, 0.99))
    return LatencySummary(len(ordered), p50, p95, p99)
