"""The benchmark of measuring: one of its two starts measures, the other does not."""

from __future__ import annotations

import pytest
from benchmarks.observability import MEASURED, SETTINGS, UNMEASURED
from support.gateway import FAST, MODEL, Running, gateway
from support.graph import eventually


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
