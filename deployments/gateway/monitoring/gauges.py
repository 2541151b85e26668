"""Metrics that are reported every few seconds: members, queues, the breaker, how late the event loop is, and
the growth of counters that others keep."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.placement import Placement
from serve_app.fleet.members import EngineReport, EngineState
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter, Metric
from serve_app.traffic import Traffic

TICKS = 20
"""Between two reports: five seconds."""

TICK_S = 0.25
"""The loop's lag is how much later than this a timer comes; the worst of a period is reported."""

Series = tuple[Metric, tuple[tuple[str, str], ...]]
"""A metric, and its labels with their values."""

logger = logging.getLogger("ray.serve")


class Gauges:
    """Made inside a running event loop; ``stop`` ends it. ``and_also`` reports what another part keeps."""

    def __init__(
        self,
        meter: Meter,
        placement: Placement,
        traffic: Traffic,
        cache: CacheClient | None,
        and_also: Callable[[], None] = lambda: None,
    ) -> None:
        self._meter = meter
        self._placement = placement
        self._traffic = traffic
        self._cache = cache
        self._and_also = and_also
        self._told: dict[tuple[Metric, str], float] = {}
        self._engines: set[Series] = set()
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
        self._report_engines()
        self._report_growth(names.TRAFFIC, asdict(self._traffic))
        if self._cache is not None:
            self._meter.set(names.BREAKER, float(self._cache.breaker_is_open), {})
            self._report_growth(names.CACHE_EVENTS, asdict(self._cache.counters))
        self._grow(names.CPU, "", time.process_time(), {})
        self._and_also()

    def _report_engines(self) -> None:
        """The load of each replica of ours, from its newest report. What has gone becomes 0 once: its last
        values would stay for ever where a metric's backend keeps them."""
        fleet = self._placement.fleet
        reports = [each.report for model in fleet.models for each in fleet.members(model)]
        values = {key: value for each in reports if not each.is_static for key, value in _of_engine(each)}
        for (metric, labels), value in (dict.fromkeys(self._engines - values.keys(), 0.0) | values).items():
            self._meter.set(metric, value, dict(labels))
        self._engines = set(values)

    def _report_growth(self, metric: Metric, counts: Mapping[str, int]) -> None:
        for event, number in counts.items():
            self._grow(metric, event, number, {"event": event})

    def _grow(self, metric: Metric, name: str, number: float, labels: Mapping[str, str]) -> None:
        """Add what a counter has grown by since the last report."""
        grown = number - self._told.get((metric, name), 0)
        if grown > 0:
            self._meter.add(metric, grown, labels)
            self._told[metric, name] = number


def _of_engine(report: EngineReport) -> Iterator[tuple[Series, float]]:
    member = (("model", report.model), ("member", report.replica_id))
    yield (names.MEMBER_REQUESTS, (*member, ("state", "running"))), report.running
    yield (names.MEMBER_REQUESTS, (*member, ("state", "waiting"))), report.waiting
    yield (names.MEMBER_CAPACITY, member), report.capacity
    if report.kv_cache_tokens:
        yield (names.KV_USE, member), report.kv_cache_usage
        yield (names.KV_TOKENS, member), report.kv_cache_tokens
    if report.speculation is not None:
        yield (names.ACCEPTANCE, member), report.speculation.acceptance_rate
    for phase, seconds in report.start_s.items():
        yield (names.ENGINE_START, (*member, ("phase", phase))), seconds
