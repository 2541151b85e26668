"""What `/admin/latency` computes, it computes once for all who ask, and not in the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.records import a_record

from deployments.gateway.monitoring import latency_page
from deployments.gateway.monitoring.latency_page import KEPT_S, LatencyPage
from deployments.gateway.monitoring.monitor import Measured, Monitor
from serve_app.latency import LatencyWindows
from serve_app.monitoring.metrics import NoMeter
from serve_app.request.record import StepTime
from serve_app.settings.alerts import AlertSettings


class Parts:
    """A page whose gateways are counted, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()
        monitor = Monitor({"m"}, AlertSettings(), NoMeter(), self.ask)
        steps = LatencyWindows()
        for each in (monitor.take, steps.take):
            each(a_record(steps=(StepTime("upstream", 5.0, 95.0),)))
        self.page = LatencyPage(monitor, steps, lambda: self.now)

    async def ask(self) -> list[Measured]:
        self.asked += 1
        await self.gate.wait()
        if self.fails:
            raise ValueError("broken")
        return []


async def test_all_who_ask_within_a_second_get_one_answer() -> None:
    parts = Parts()
    first, second = await asyncio.gather(parts.page.read(), parts.page.read())
    assert first is second
    assert first["windows"]["1m"]["models"]["m"]["counts"]["requests"] == 1
    assert "upstream" in first, "the steps of this gateway stay"
    parts.now = KEPT_S / 2
    assert await parts.page.read() is first
    parts.now = KEPT_S + 0.1
    assert await parts.page.read() is not first
    assert parts.asked == 2


async def test_one_who_leaves_takes_the_answer_from_no_other() -> None:
    parts = Parts()
    parts.gate.clear()
    one, other = (asyncio.ensure_future(parts.page.read()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    parts.gate.set()
    assert (await other)["gateways"] == 1


async def test_a_failure_is_not_kept() -> None:
    parts = Parts()
    parts.fails = True
    with pytest.raises(ValueError, match="broken"):
        await parts.page.read()
    parts.fails = False
    assert (await parts.page.read())["gateways"] == 1


async def test_percentiles_are_read_out_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Any] = []
    usual = latency_page.summaries

    def noted(samples: Any) -> Any:
        threads.append(threading.current_thread())
        return usual(samples)

    monkeypatch.setattr(latency_page, "summaries", noted)
    await Parts().page.read()
    assert threads
    assert threading.current_thread() not in threads
