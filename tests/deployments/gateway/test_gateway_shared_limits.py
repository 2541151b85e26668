"""Limits that hold for all gateways of an application together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from local_cache import local_cache
from sim_engine import SimEngine
from support.gateway import Band, Running, SimSettings, gateway
from support.graph import eventually

ENDLESS = SimSettings(itl_ms=20, tokens=10_000)
TWO = {"gateway": {"replicas": 2}}


@asynccontextmanager
async def two_gateways(upstream: dict[str, Any] | None = None, **args: Any) -> AsyncIterator[list[Running]]:
    """Before the same engine."""
    engine, band = SimEngine(ENDLESS), Band()
    url = await engine.start()
    member = {"name": "e0", "url": f"{url}/v1", "kind": "vllm", "health_period_s": 0.05, **(upstream or {})}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        both = [
            await stack.enter_async_context(gateway(others=[member], band=band, **TWO, **args))
            for _ in range(2)
        ]
        await band.meet()
        yield both


async def settled(asked: list[asyncio.Task[int]], is_so: Callable[[Counter[int]], bool]) -> Counter[int]:
    """The statuses of those that are answered, once they are as expected; the others wait."""

    def statuses() -> Counter[int]:
        return Counter(task.result() for task in asked if task.done())

    async def so() -> bool:
        return is_so(statuses())

    assert await eventually(so, within_s=20), statuses()
    return statuses()


async def ended(asked: list[asyncio.Task[int]]) -> None:
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def status_of(work: Awaitable[Any]) -> int:
    return int((await work).status)


async def test_the_queue_of_a_model_is_as_long_at_two_gateways_as_at_one() -> None:
    limits = {"max_queued_requests": 4, "max_queue_wait_s": 300.0}
    async with two_gateways({"max_requests": 2}, limits=limits) as both:
        asked = [
            asyncio.ensure_future(status_of(running.post(f"question {number}", ignore_eos=True)))
            for number in range(12)
            for running in both
        ]
        try:
            # Two run and four wait; without shares it would be eight.
            found = await settled(asked, lambda statuses: statuses[429] >= len(asked) - 6)
            assert set(found) == {429}
        finally:
            await ended(asked)


async def test_a_tenants_texts_at_the_embedder_are_counted_over_all_gateways(folder: Path) -> None:
    limits = {"max_embedding_inputs": 1, "max_embedding_texts_per_tenant": 6}
    async with (
        local_cache(folder) as cache,
        two_gateways(handles=cache.handles, limits=limits, **cache.args) as both,
    ):
        with cache.embedder.held("embed"):
            asked = [
                asyncio.ensure_future(embedded(running, f"text {number}"))
                for number in range(8)
                for running in both
            ]
            found = await settled(asked, lambda statuses: statuses[429] >= len(asked) - 6)
            assert set(found) == {429}
        await asyncio.gather(*asked)


async def test_one_gateway_has_the_whole_limit(folder: Path) -> None:
    limits = {"max_embedding_inputs": 1, "max_embedding_texts_per_tenant": 6}
    async with (
        local_cache(folder) as cache,
        gateway(handles=cache.handles, limits=limits, **cache.args) as running,
    ):
        with cache.embedder.held("embed"):
            asked = [asyncio.ensure_future(embedded(running, f"text {number}")) for number in range(8)]
            found = await settled(asked, lambda statuses: statuses[429] >= 2)
            assert found == {429: 2}
        assert Counter(await asyncio.gather(*asked)) == {200: 6, 429: 2}


async def embedded(running: Running, text: str) -> int:
    async with running.http.post("/v1/embeddings", json={"model": "words", "input": text}) as response:
        await response.read()
        return response.status
