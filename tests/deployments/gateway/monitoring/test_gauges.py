"""What a gateway reports of its members, queues and event loop."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from support.gateway import FAST, gateway
from support.graph import eventually
from support.meter import Meter

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.monitoring.gauges import Gauges
from serve_app.fleet import EngineReport, EngineState, FleetTable
from serve_app.monitoring.metrics import ENGINE_START, METRICS
from serve_app.speculation import SpeculationReport
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


def engine(name: str, **fields: Any) -> EngineReport:
    return EngineReport(name, "m", f"http://{name}", {}, EngineState.READY, **fields)


async def test_engines_are_reported_by_member_until_they_have_gone() -> None:
    meter, fleet = Meter(), FleetTable({"m": None})
    busy = engine(
        "a",
        running=3,
        waiting=1,
        capacity=4,
        kv_cache_usage=0.5,
        kv_cache_tokens=1000,
        speculation=SpeculationReport(acceptance_rate=0.25),
        start_s={"load": 2.5, "graphs": 1.0},
    )
    fleet.update("m", [busy, engine("b", capacity=2)], 0.0)
    fleet.learn(engine("upstream", is_static=True, capacity=64), 0.0)
    placement: Any = SimpleNamespace(fleet=fleet, admissions={"m": SimpleNamespace(waiting=0)})
    gauges = Gauges(meter, placement, Traffic(), None)
    gauges.report()
    values = meter.values
    states = {("m", "a", "running"): 3, ("m", "a", "waiting"): 1}
    assert values["promptly_member_requests"] == {
        **states,
        ("m", "b", "running"): 0,
        ("m", "b", "waiting"): 0,
    }
    assert values["promptly_member_capacity"] == {("m", "a"): 4, ("m", "b"): 2}
    assert values["promptly_member_kv_cache_use"] == {("m", "a"): 0.5}
    assert values["promptly_member_kv_cache_tokens"] == {("m", "a"): 1000}
    assert values["promptly_member_draft_acceptance"] == {("m", "a"): 0.25}
    assert ENGINE_START in METRICS  # a meter makes those alone
    assert values["promptly_engine_start_seconds"] == {("m", "a", "load"): 2.5, ("m", "a", "graphs"): 1.0}

    fleet.update("m", [engine("b", capacity=2)], 1.0)
    gauges.report()
    assert values["promptly_member_requests"] == dict.fromkeys(values["promptly_member_requests"], 0)
    assert values["promptly_member_kv_cache_use"] == {("m", "a"): 0}
    assert values["promptly_member_capacity"] == {("m", "a"): 0, ("m", "b"): 2}
    values["promptly_member_capacity"].clear()
    gauges.report()
    assert values["promptly_member_capacity"] == {("m", "b"): 2}, "the zero is reported once"
    await gauges.stop()


async def test_what_the_cache_counts_and_the_gateways_cpu_time_grow() -> None:
    meter, counters = Meter(), CacheCounters()
    nobody: Any = SimpleNamespace(fleet=FleetTable({}), admissions={})
    cache: Any = SimpleNamespace(counters=counters, breaker_is_open=True)
    gauges = Gauges(meter, nobody, Traffic(), cache)
    counters.misses, counters.near_misses, counters.reported_wrong = 3, 2, 1
    gauges.report()
    used_s = meter.values["promptly_gateway_cpu_seconds"][()]
    assert 0 < used_s <= time.process_time()
    counters.misses -= 1  # the model was asked, and the near entry did serve
    gauges.report()
    counters.reported_wrong += 1
    gauges.report()
    await gauges.stop()
    assert meter.values["promptly_cache_events"] == {
        ("misses",): 3,
        ("near_misses",): 2,
        ("reported_wrong",): 2,
    }
    assert meter.values["promptly_breaker_open"] == {(): 1}
    assert used_s < meter.values["promptly_gateway_cpu_seconds"][()] <= time.process_time()


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
