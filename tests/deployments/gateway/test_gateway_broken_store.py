"""A Qdrant server that fails under traffic: requests flow as misses, and hits come back by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from local_cache import LocalCache, local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually
from support.qdrant_rest import Fault, QdrantRest

QUICK = SimSettings(itl_ms=0, tokens=6)
REQUESTS = 60
BUDGET_MS = 150.0
"""Of a look-up; short, so that a server that hangs is soon known."""

COOLDOWN_S = 0.2


@asynccontextmanager
async def served(
    folder: Path, cooldown_s: float = COOLDOWN_S
) -> AsyncIterator[tuple[Running, QdrantRest, LocalCache]]:
    server = QdrantRest(folder / "qdrant")
    await server.start()
    try:
        async with (
            local_cache(
                folder,
                store="qdrant",
                qdrant={"url": server.url, "timeout_s": 10.0},
                race=False,
                lookup_budget_ms=BUDGET_MS,
                breaker_cooldown_s=cooldown_s,
                call_timeout_s=30.0,  # longer than the server's: its counters can be read while it hangs
            ) as cache,
            gateway(QUICK, handles=cache.handles, **cache.args) as running,
        ):
            yield running, server, cache
    finally:
        await server.close()


async def traffic(running: Running, first: int) -> list[int]:
    """Statuses of many new questions, eight at a time."""
    room = asyncio.Semaphore(8)

    async def ask(number: int) -> int:
        async with room:
            return (await running.post(f"question number {number} of many")).status

    return await asyncio.gather(*(ask(first + number) for number in range(REQUESTS)))


async def breaks(fault: Fault | None, server: QdrantRest) -> None:
    """``None``: it refuses connections."""
    if fault is None:
        await server.stop()
    else:
        server.fault = fault


async def mends(fault: Fault | None, server: QdrantRest) -> None:
    if fault is None:
        await server.start()
    else:
        server.fault = None
        server.let()


@pytest.mark.parametrize("fault", [None, Fault.HANG, Fault.ERROR, Fault.GARBAGE, Fault.OTHER_JSON, Fault.CUT])
async def test_no_request_fails_and_hits_come_back_by_themselves(folder: Path, fault: Fault | None) -> None:
    async with served(folder) as (running, server, _):
        assert set(await traffic(running, 0)) == {200}
        await breaks(fault, server)
        assert set(await traffic(running, 1000)) == {200}
        await mends(fault, server)

        async def hits() -> bool:
            await running.post("what comes back")
            found = await running.post("comes back what")
            return found.headers["x-cache"] in ("exact", "semantic")

        assert await eventually(hits, within_s=20)
        stats: Any = await running.get("/admin/cache")
        assert stats["failures"] > 0


async def test_behind_an_open_breaker_a_request_does_not_wait_for_the_store(folder: Path) -> None:
    async with served(folder, cooldown_s=30.0) as (running, server, cache):
        server.fault = Fault.HANG
        asked = (f"question {number} that nobody asked before" for number in count())

        async def asks_no_more() -> bool:
            before = cache.store.begun["look_up"]
            assert (await running.post(next(asked))).status == 200
            return cache.store.begun["look_up"] == before

        assert await eventually(asks_no_more, within_s=20)
        before = cache.store.begun["look_up"]
        stats: Any = await running.get("/admin/cache")
        for _ in range(20):
            assert (await running.post(next(asked))).status == 200
        assert cache.store.begun["look_up"] == before
        after: Any = await running.get("/admin/cache")
        assert after["dropped"] - stats["dropped"] == 20  # nor is anything embedded and written beside them
        server.let()
