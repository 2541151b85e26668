"""The benchmark of measuring compares both starts with the bare engine beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.layer import Level
from benchmarks.observability import MEASURED, SETTINGS, UNMEASURED, figures_of
from support.gateway import FAST, MODEL, Running, gateway
from support.graph import eventually

BARE = Level(
    ttft_p50_ms=20.0,
    ttft_p99_ms=30.0,
    chunk_delay_p50_ms=0.1,
    chunk_delay_p99_ms=1.0,
    tokens_per_s=3000.0,
    cpu_s_per_1k_tokens=0.0,
    errors=0.0,
)


def test_throughput_is_relative_to_the_bare_engine_of_the_same_start() -> None:
    on = replace(BARE, ttft_p50_ms=31.0, tokens_per_s=2700.0, cpu_s_per_1k_tokens=0.12)
    off = replace(BARE, ttft_p50_ms=30.5, tokens_per_s=1450.0, cpu_s_per_1k_tokens=0.10)
    slow = replace(BARE, tokens_per_s=1500.0)
    figures = figures_of([{MEASURED: [(BARE, on)], UNMEASURED: [(slow, off)]}])
    throughput, ttft, cpu = [figure.values for figure in figures]
    assert throughput == pytest.approx((0.9 / (1450 / 1500),))
    assert ttft == pytest.approx((0.5,))
    assert cpu == pytest.approx((1.2,))


@pytest.mark.parametrize(("name", "requests"), [(MEASURED, 1), (UNMEASURED, 0)])
async def test_only_a_gateway_that_measures_has_figures(name: str, requests: int) -> None:
    async with gateway(FAST, **SETTINGS[name]) as running:
        assert (await running.post("hi")).status == 200
        assert await eventually(lambda: counted(running, requests), within_s=5)
        newest = await running.get("/admin/requests")
    assert len(newest["requests"]) == requests


async def counted(running: Running, requests: int) -> bool:
    """Whether the latency windows have the model's requests, or none."""
    shown = await running.get("/admin/latency")
    return (MODEL in shown["windows"]["1m"]["models"]) is bool(requests)
