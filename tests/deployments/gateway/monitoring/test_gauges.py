"""What a gateway reports of its members, queues and event loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.gateway import FAST, gateway
from support.graph import eventually
from support.meter import Meter

from deployments.gateway.monitoring.gauges import Gauges
from serve_app.fleet import FleetTable
from serve_app.traffic import Traffic


async def test_members_and_queues_are_reported_by_model() -> None:
    meter = Meter()
    async with gateway(FAST, FAST, meter=meter):

        async def told() -> bool:
            return "promptly_queued_requests" in meter.values

        assert await eventually(told, within_s=5)
        members = meter.values["promptly_members"]
        assert members["sim", "ready"] == 2
        assert members["sim", "draining"] == 0
        assert meter.values["promptly_queued_requests"] == {("sim",): 0}
        assert 0 <= meter.values["promptly_gateway_loop_lag_seconds"][()] < 5


async def test_counters_grow_as_the_traffic_does() -> None:
    meter, traffic = Meter(), Traffic()
    nobody: Any = SimpleNamespace(fleet=FleetTable({}), admissions={})
    gauges = Gauges(meter, nobody, traffic, None)
    for traffic.requests, traffic.failovers in ((3, 0), (3, 0), (5, 1)):
        gauges.report()
    await gauges.stop()
    assert meter.values["promptly_traffic"] == {("requests",): 5, ("failovers",): 1}


async def test_finished_requests_are_counted_by_model_and_outcome() -> None:
    meter = Meter()
    async with gateway(meter=meter) as running:
        for number in range(3):
            await running.post(f"hello {number}", stream=True)

        async def counted() -> bool:
            return meter.values.get("promptly_requests") == {("sim", "answered"): 3}

        assert await eventually(counted, within_s=5), meter.values
        assert len(meter.observed["promptly_ttft_seconds"]["sim", "answered"]) == 3
        assert all(0 < value < 5 for value in meter.observed["promptly_ttft_seconds"]["sim", "answered"])
        assert len(meter.observed["promptly_overhead_seconds"]["sim", "answered"]) == 3
