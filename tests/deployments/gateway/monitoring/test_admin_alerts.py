"""Alerts and latency windows of a real gateway, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.gateway import FAST, Faults, Running, SimSettings, chat, gateway
from support.graph import eventually

SOON: dict[str, Any] = {"period_s": 0.05, "hold_s": 0.0, "clear_s": 0.0, "min_requests": 3}


async def fires(running: Running, rule: str, model: str = "sim") -> dict[str, Any]:
    """The alert, as soon as it fires."""
    found: list[dict[str, Any]] = []

    async def there() -> bool:
        firing = (await running.get("/admin/alerts"))["firing"]
        found[:] = [each for each in firing if (each["rule"], each["model"]) == (rule, model)]
        return bool(found)

    assert await eventually(there, within_s=5), await running.get("/admin/alerts")
    return found[0]


async def ask(running: Running, number: int, **fields: Any) -> None:
    for count in range(number):
        await running.post(f"question {count}", stream=True, **fields)


async def test_slow_first_tokens_fire() -> None:
    slow = SimSettings(itl_ms=1.0, tokens=2, first_token_ms=60.0)
    async with gateway(slow, alerts={**SOON, "ttft_p95_ms": 50.0}) as running:
        await ask(running, 3)
        alert = await fires(running, "ttft_p95")
        assert alert["value"] > 50
        assert (alert["limit"], alert["unit"]) == (50.0, "ms")
        shown = await running.get("/admin/alerts")
        assert [(each["rule"], each["firing"]) for each in shown["changes"]] == [("ttft_p95", True)]
        assert shown["changes"][0]["at"] > 1.7e9


async def test_failing_requests_fire() -> None:
    async with gateway(alerts=SOON) as running:
        await running.engines[0].set_faults(Faults(status=500))
        for _ in range(3):
            assert (await running.post("hello")).status >= 500
        await fires(running, "error_share")


async def test_stalled_streams_fire() -> None:
    limits = {"between_tokens_timeout_s": 0.1}
    async with gateway(alerts={**SOON, "stalled_streams": 1}, limits=limits) as running:
        await running.engines[0].set_faults(Faults(hang_after=2))
        answer = await running.post("hello", {"x-failover": "off"}, stream=True)
        assert answer.cut["code"] == "upstream_stalled"
        await fires(running, "stalled_streams")


async def test_very_long_answers_fire() -> None:
    async with gateway(alerts={**SOON, "runaway_tokens": 20, "runaway_generations": 2}) as running:
        await ask(running, 2)
        await fires(running, "runaway_generations")


async def test_an_agent_in_a_loop_fires() -> None:
    async with gateway(alerts={**SOON, "loop_requests": 4}) as running:
        for _ in range(4):
            await running.post("run the tests", {"x-session-id": "s"})
        await fires(running, "looping_sessions")
        assert "run the tests" not in str(await running.get("/admin/alerts"))


async def test_latency_is_shown_by_window_model_and_outcome() -> None:
    async with gateway() as running:
        await ask(running, 5)
        await running.send(chat("hello", model="no-such-model"))

        async def counted() -> bool:
            shown = await running.get("/admin/latency")
            return bool(shown["windows"]["1m"]["models"].get("other"))

        assert await eventually(counted, within_s=5)
        shown = await running.get("/admin/latency")
        assert shown["gateways"] == 1
        assert shown["total"]["count"] >= 6, "the steps of this gateway stay"
        for window in ("1m", "5m", "30m"):
            models = shown["windows"][window]["models"]
            assert models["sim"]["counts"]["requests"] == 5
            assert models["other"]["counts"] == {"requests": 1}
            measures = models["sim"]["outcomes"]["answered"]
            assert {"ttft", "tpot", "e2e", "overhead"} <= measures.keys()
            assert models["sim"]["counts"]["tokens"] >= 5 * FAST.tokens
            assert measures["ttft"]["count"] == 5
            assert 0 < measures["ttft"]["p50"] <= measures["ttft"]["p99"] <= measures["e2e"]["p99"] * 1.02


@pytest.mark.parametrize("path", ["/admin/alerts", "/admin/latency"])
async def test_only_administrators_see_them(path: str) -> None:
    async with gateway(tenants=["a"]) as running:
        async with running.http.get(path, headers=running.headers("a")) as response:
            assert response.status == 403
        async with running.http.get(path) as response:
            assert response.status == 401
