"""What ``/admin/latency`` shows: computed in a thread, once a second for all who ask. Reading out the
percentiles of a model takes milliseconds, in which no token would move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deployments.gateway.monitoring.monitor import Clock, MergedFigures, Monitor
from serve_app.latency import LatencyWindows, summaries

KEPT_S = 1.0


class LatencyPage:
    """``latency``: the steps of this gateway; ``monitor``: the windows of all."""

    def __init__(self, monitor: Monitor, latency: LatencyWindows, clock: Clock = time.monotonic) -> None:
        self._monitor = monitor
        self._latency = latency
        self._clock = clock
        self._making: asyncio.Task[dict[str, Any]] | None = None
        self._made_at = float("-inf")

    async def read(self) -> dict[str, Any]:
        """Milliseconds of each step; ``windows``: by model and outcome over all ``gateways``."""
        making = self._making
        if making is None or (making.done() and self._is_old(making)):
            making = self._making = asyncio.get_running_loop().create_task(self._make())
        return await asyncio.shield(making)  # who leaves takes it from no other

    def _is_old(self, made: asyncio.Task[dict[str, Any]]) -> bool:
        failed = made.cancelled() or made.exception() is not None
        return failed or self._clock() - self._made_at >= KEPT_S

    async def _make(self) -> dict[str, Any]:
        together = await self._monitor.together()
        shown = await asyncio.to_thread(_shown, together, self._latency.samples())
        self._made_at = self._clock()
        return shown


def _shown(together: MergedFigures, samples: Mapping[str, list[float]]) -> dict[str, Any]:
    steps = {name: asdict(window) for name, window in summaries(samples).items()}
    return {**steps, "gateways": together.gateways, "windows": together.figures.shown()}
