"""Metrics that describe a moment: members, queues, the breaker, how late the event loop is."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import asdict

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.placement import Placement
from serve_app.fleet.members import EngineState
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter
from serve_app.traffic import Traffic

TICKS = 20
"""Between two reports: five seconds."""

TICK_S = 0.25
"""The loop's lag is how much later than this a timer comes; the worst of a period is reported."""

logger = logging.getLogger("ray.serve")


class Gauges:
    """Made inside a running event loop; ``stop`` ends it."""

    def __init__(
        self, meter: Meter, placement: Placement, traffic: Traffic, cache: CacheClient | None
    ) -> None:
        self._meter = meter
        self._placement = placement
        self._traffic = traffic
        self._cache = cache
        self._told: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._report_forever())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _report_forever(self) -> None:
        ticks = 1  # the first report is soon
        while True:
            lag_s = await self._worst_lag(ticks)
            ticks = TICKS
            try:
                self._meter.set(names.LOOP_LAG, lag_s, {})
                self.report()
            except Exception:
                logger.exception("metrics could not be reported")

    async def _worst_lag(self, ticks: int) -> float:
        worst = 0.0
        for _ in range(ticks):
            before = self._loop.time()
            await asyncio.sleep(TICK_S)
            worst = max(worst, self._loop.time() - before - TICK_S)
        return worst

    def report(self) -> None:
        """What is so now."""
        fleet = self._placement.fleet
        for model in fleet.models:
            states = Counter(member.report.state for member in fleet.members(model))
            for state in EngineState:
                self._meter.set(names.MEMBERS, states[state], {"model": model, "state": state.value})
            self._meter.set(names.QUEUED, self._placement.admissions[model].waiting, {"model": model})
        if self._cache is not None:
            self._meter.set(names.BREAKER, float(self._cache.breaker_is_open), {})
        self._report_traffic()

    def _report_traffic(self) -> None:
        """The counters' growth since the last report."""
        for event, number in asdict(self._traffic).items():
            grown = number - self._told.get(event, 0)
            if grown > 0:
                self._meter.add(names.TRAFFIC, grown, {"event": event})
                self._told[event] = number
