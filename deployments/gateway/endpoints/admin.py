"""``/admin/engines``, ``/fleet``, ``/latency``, ``/alerts`` and ``/traffic``: what gateways know and measure.
All of them need an admin key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deployments.gateway.monitoring.latency_page import LatencyPage
from deployments.gateway.monitoring.watching import Watching
from deployments.gateway.placement.engine_status import EngineStatus, EngineStatuses
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.autoscaling.changes import ScalingChange
from serve_app.fleet import FleetTable, Member, PrefillCounts
from serve_app.speculation import SpeculationReport
from serve_app.traffic import Traffic


class Admin:
    """Answers hold no secrets. ``managed``: the models with engines of this application."""

    def __init__(
        self,
        *,
        managed: Sequence[str],
        fleet: FleetTable,
        engines: EngineStatuses,
        latency: LatencyPage,
        watching: Watching,
        traffic: Traffic,
    ) -> None:
        self._managed = managed
        self._fleet = fleet
        self._engines = engines
        self._latency = latency
        self._watching = watching
        self._traffic = traffic

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "admin_alerts": self.alerts,
            "admin_engines": self.engines,
            "admin_fleet": self.fleet,
            "admin_latency": self.latency,
            "admin_traffic": self.traffic,
        }

    async def fleet(self, exchange: Exchange) -> None:
        fleet, now = self._fleet, time.monotonic()
        await exchange.respond_json(
            {model: [_member(member, now) for member in fleet.members(model)] for model in fleet.models}
        )

    async def engines(self, exchange: Exchange) -> None:
        """For each managed model: the status that Serve reports, why its fleet was scaled (the newest change
        first), and how long each replica took to start."""
        statuses, fleet = await self._engines.read(), self._fleet
        await exchange.respond_json(
            {model: _engines(statuses.get(model), fleet.members(model)) for model in self._managed}
        )

    async def latency(self, exchange: Exchange) -> None:
        """Milliseconds of each step, over the newest requests of this gateway; ``windows``: by model and
        outcome over all ``gateways``."""
        await exchange.respond_json(await self._latency.read())

    async def alerts(self, exchange: Exchange) -> None:
        """What fires, how far every rule is from it, and what has changed."""
        await exchange.respond_json(self._watching.alerting.shown())

    async def traffic(self, exchange: Exchange) -> None:
        """Counts of this gateway's requests by outcome, since it started."""
        await exchange.respond_json(asdict(self._traffic))


def _engines(status: EngineStatus | None, members: Sequence[Member]) -> dict[str, Any]:
    return {
        "status": None if status is None else status.status,
        "message": None if status is None else status.message,
        "scaling": [] if status is None else [_change(change) for change in reversed(status.changes)],
        "replicas": [
            {
                "replica": member.name,
                "state": member.report.state.value,
                "start_s": {phase: round(seconds, 2) for phase, seconds in member.report.start_s.items()},
            }
            for member in members
            if not member.report.is_static
        ],
    }


def _change(change: ScalingChange) -> dict[str, Any]:
    shown = {"at": change.at, "from": change.before, "to": change.after, "needed": change.needed}
    sleep = {name: number for name in ("wake", "sleep") if (number := getattr(change, name))}
    return {**shown, "reason": change.reason, **sleep}


def _member(member: Member, now: float) -> dict[str, Any]:
    report = member.report
    return {
        "replica": member.name,
        "url": report.url,
        "state": report.state.value,
        "can_serve": member.can_serve(now),
        "running": report.running,
        "waiting": report.waiting,
        "kv_cache_usage": round(report.kv_cache_usage, 4),
        "capacity": report.capacity,
        "limit": member.limit,
        "priority": report.priority,
        "in_flight": member.in_flight,
        "service_s": round(member.pace.service_s, 4) if member.pace.ends else None,
        "reported_ago_s": round(now - member.reported_at, 3),
        "speculation": _part(report.speculation),
        "prefills": _part(report.prefills),
    }


def _part(report: SpeculationReport | PrefillCounts | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(report).items()
    }
