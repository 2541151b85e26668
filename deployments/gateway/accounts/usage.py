"""The usage of one gateway on its way to the owner: a sink of finished requests, and the rows of a report."""

from __future__ import annotations

import logging

from serve_app.fleet import FleetTable
from serve_app.metering import Metering, Running
from serve_app.model_choice.names import ModelNames
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter
from serve_app.monitoring.windows import OTHER
from serve_app.usage import Counts, UsageRow

MOST_ROWS = 2000
"""Rows of one report: some 20 ms of work for the owner."""

logger = logging.getLogger("ray.serve")


def running_in(fleet: FleetTable, names: ModelNames) -> Running:
    """Requests at each replica of the fleet, by its newest report and by what this gateway has there."""

    def running(model: str, member: str) -> int | None:
        served = names.served.get(model)
        if served is None:
            return None
        for each in fleet.members(served.model):
            if each.name == member and not each.report.is_static:
                return max(each.report.running, each.in_flight)
        return None

    return running


class UsageReports:
    """``tenants``: so many have metrics of their own, those that came first; the others share one name."""

    def __init__(self, metering: Metering, meter: Meter, tenants: int) -> None:
        self.take = metering.take
        self._metering = metering
        self._meter = meter
        self._most_tenants = tenants
        self._tenants: set[str] = set()
        self._said_dropped = 0

    def rows(self) -> list[UsageRow]:
        """What is to be reported next. It is not given again."""
        rows = self._metering.drain(MOST_ROWS)
        for row in rows:
            self._measure(self._label(row.tenant), row.counts)
        dropped = self._metering.dropped - self._said_dropped
        if dropped:
            self._said_dropped += dropped
            self._meter.add(names.USAGE_DROPPED, dropped, {})
            logger.error("the usage of %d requests was not counted: too much of it waits", dropped)
        return rows

    def _label(self, tenant: str) -> str:
        if tenant not in self._tenants:
            if len(self._tenants) >= self._most_tenants:
                return OTHER
            self._tenants.add(tenant)
        return tenant

    def _measure(self, tenant: str, counts: Counts) -> None:
        for metric, kind, number in (
            (names.TENANT_REQUESTS, "answered", counts.requests - counts.refused),
            (names.TENANT_REQUESTS, "refused", counts.refused),
            (names.TENANT_TOKENS, "input", counts.tokens_in),
            (names.TENANT_TOKENS, "output", counts.tokens_out),
            (names.TENANT_TOKENS, "saved", counts.tokens_saved),
            (names.TENANT_COST, "tokens", counts.cost),
            (names.TENANT_COST, "devices", counts.gpu_cost),
            (names.TENANT_COST, "saved", counts.saved),
        ):
            if number > 0:
                self._meter.add(metric, number, {"tenant": tenant, "kind": kind})
