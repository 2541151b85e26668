"""What one tenant asks of the cache does not close it to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from local_cache import LocalCache, local_cache
from support.gateway import Answered, Running, SimSettings, gateway, meanwhile
from support.graph import eventually

from deployments.gateway.lookup.look_ups import MOST_AT_ONCE, MOST_CHARACTERS

QUICK = SimSettings(itl_ms=0, tokens=4)


@asynccontextmanager
async def two_tenants(folder: Path) -> AsyncIterator[tuple[Running, LocalCache]]:
    async with (
        local_cache(folder, race=False, lookup_budget_ms=50_000.0) as cache,
        gateway(QUICK, handles=cache.handles, tenants=["a", "b"], **cache.args) as running,
    ):
        yield running, cache


async def ask(running: Running, tenant: str, text: str) -> Answered:
    return await running.post(text, running.headers(tenant), temperature=0)


async def test_a_text_that_no_embedder_reads_is_never_embedded_but_found_again(folder: Path) -> None:
    long = "a question " * (MOST_CHARACTERS // 10)
    async with two_tenants(folder) as (running, cache):
        assert (await ask(running, "a", "short")).status == 200
        before = cache.embedder.begun["embed"]
        assert (await ask(running, "a", long)).headers["x-cache"] == "miss"
        assert (await ask(running, "a", long)).headers["x-cache"] == "exact"
        assert cache.embedder.begun["embed"] == before


async def test_beyond_its_look_ups_a_tenants_requests_are_misses_and_the_others_are_looked_up(
    folder: Path,
) -> None:
    async with two_tenants(folder) as (running, cache):
        assert (await ask(running, "b", "known")).status == 200

        async def until_asked(calls: int) -> None:
            async def so() -> bool:
                return cache.embedder.begun["embed"] >= calls

            assert await eventually(so, within_s=30), cache.embedder.begun

        calls = cache.embedder.begun["embed"]
        with cache.embedder.held("embed"):
            async with meanwhile(ask_many(running, "a", MOST_AT_ONCE)) as asked:
                await until_asked(calls + MOST_AT_ONCE)
                beyond = await ask(running, "a", "one more")
                assert (beyond.status, beyond.headers["x-cache"]) == (200, "miss")
                async with meanwhile(ask(running, "b", "another")) as other:
                    await until_asked(calls + MOST_AT_ONCE + 1)
                    cache.embedder.let("embed")
                    assert (await other).status == 200
                assert {answer.status for answer in await asked} == {200}
        state = await running.get("/admin/cache")
        assert (state["failures"], state["breaker_open"]) == (0, False)


async def ask_many(running: Running, tenant: str, count: int) -> list[Answered]:
    return await asyncio.gather(*(ask(running, tenant, f"question {number}") for number in range(count)))
