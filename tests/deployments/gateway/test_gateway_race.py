"""Look-up and engine side by side: the first with something to say answers, the other one stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from local_cache import LocalCache, local_cache
from support.gateway import Faults, Running, SimSettings, gateway, meanwhile
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=6)
ENDLESS = SimSettings(itl_ms=20, tokens=10_000)
SLOW_TO_BEGIN = Faults(first_byte_ms=3_000)

ASKED = "what is the capital of france"
NEAR = "the capital of france is what"
"""The embedder of these tests finds them alike; the gateway's memory does not."""


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder) as cache:
        yield cache


def racing(cache: LocalCache, *settings: SimSettings, **args: Any) -> Any:
    return gateway(*(settings or (QUICK,)), handles=cache.handles, **(cache.args | args))


async def store(running: Running, text: str = ASKED, headers: Mapping[str, str] | None = None) -> str:
    """Ask, and wait until the answer is in the store; returns it."""
    before = (await running.get("/admin/cache"))["entries"]
    answer = await running.post(text, headers)
    assert answer.headers["x-cache"] == "miss"
    await until_stored(running, before + 1)
    return answer.text


async def until_stored(running: Running, entries: int) -> None:
    async def stored() -> bool:
        return bool((await running.get("/admin/cache"))["entries"] == entries)

    assert await eventually(stored, within_s=5)


async def counted(running: Running) -> tuple[int, int]:
    traffic = await running.traffic()
    return traffic["raced"], traffic["race_hits"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_hit_wins_against_a_slow_engine_and_stops_it(cache: LocalCache, stream: bool) -> None:
    async with racing(cache) as running:
        expected = await store(running)
        engine = running.engines[0]
        await engine.set_faults(SLOW_TO_BEGIN)
        async with asyncio.timeout(2):
            answer = await running.post(NEAR, stream=stream)
            assert (answer.text, answer.headers["x-cache"]) == (expected, "semantic")
            assert answer.headers["x-served-by"] == "cache"
            await engine.until(lambda stats: (stats.requests, stats.aborted) == (2, 1))
        assert await counted(running) == (2, 1)
        await running.until_idle()


async def test_a_hit_wins_against_an_engine_that_fails(cache: LocalCache) -> None:
    async with racing(cache) as running:
        expected = await store(running)
        await running.engines[0].set_faults(Faults(status=500))
        with cache.store.held("look_up"):
            async with meanwhile(running.post(NEAR)) as asked:
                await running.engines[0].until(lambda stats: stats.requests == 2)
                await running.until_idle()
                assert not asked.done()
                cache.store.let("look_up")
                answer = await asked
        assert (answer.text, answer.headers["x-cache"]) == (expected, "semantic")


async def test_an_engine_that_is_first_answers_and_the_look_up_does_no_harm(cache: LocalCache) -> None:
    async with racing(cache) as running:
        with cache.embedder.held("embed"):
            async with asyncio.timeout(2):
                answer = await running.post(ASKED, stream=True)
            assert (answer.headers["x-cache"], bool(answer.text)) == ("miss", True)
            assert cache.embedder.ended["embed"] == 1  # the warm-up's
        assert await counted(running) == (1, 0)
        await until_stored(running, 1)
        numbers = await running.get("/admin/cache")
        assert (numbers["failures"], numbers["breaker_open"]) == (0, False)
        assert (await running.post(ASKED)).headers["x-cache"] == "exact"
        await running.engines[0].set_faults(SLOW_TO_BEGIN)
        near = await running.post(NEAR)
        assert (near.text, near.headers["x-cache"]) == (answer.text, "semantic")


async def test_many_cancelled_look_ups_do_not_open_the_breaker(folder: Path) -> None:
    async with local_cache(folder, breaker_failures=2) as cache, racing(cache) as running:
        with cache.store.held("look_up"):
            for number in range(6):
                assert (await running.post(f"text {number}")).headers["x-cache"] == "miss"
        numbers = await running.get("/admin/cache")
        assert (numbers["breaker_open"], numbers["failures"]) == (False, 0)


async def test_a_vector_that_the_look_up_made_is_not_made_again_for_the_store(cache: LocalCache) -> None:
    async with racing(cache) as running:
        made = cache.embedder.begun["embed"]
        await store(running)
        assert cache.embedder.begun["embed"] == made + 1


async def test_a_miss_leaves_the_engine_to_answer(cache: LocalCache) -> None:
    async with racing(cache) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=200))
        answer = await running.post(ASKED, stream=True)
        assert (answer.headers["x-cache"], bool(answer.text)) == ("miss", True)
        assert cache.store.ended["look_up"] == 1
        assert await counted(running) == (1, 0)


async def test_a_store_that_fails_leaves_the_engine_to_answer(cache: LocalCache) -> None:
    async with racing(cache) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=100))
        with cache.store.failing("look_up"):
            answer = await running.post(ASKED)
        assert (answer.status, answer.headers["x-cache"]) == (200, "miss")
        assert (await running.get("/admin/cache"))["failures"] == 1


async def test_an_engine_that_refuses_says_so_when_there_is_no_hit(cache: LocalCache) -> None:
    async with racing(cache) as running:
        await running.engines[0].set_faults(Faults(status=422))
        answer = await running.post(ASKED)
        assert (answer.status, answer.error["message"]) == (422, "A simulated failure.")
        await running.until_idle()


async def test_without_room_the_look_up_goes_first_and_a_hit_asks_no_engine(cache: LocalCache) -> None:
    async with racing(cache, upstream={"max_requests": 1}) as running:
        expected = await store(running)
        raced = await counted(running)
        await running.engines[0].set_faults(SLOW_TO_BEGIN)
        async with meanwhile(running.post("in the way", {"cache-control": "no-store"})):
            await running.engines[0].until(lambda stats: stats.requests == 2)
            answer = await running.post(NEAR)
            assert (answer.text, answer.headers["x-cache"]) == (expected, "semantic")
            assert running.requests() == [2]
            assert await counted(running) == raced
            assert (await running.traffic())["queued"] == 0


async def test_without_a_race_a_hit_asks_no_engine(folder: Path) -> None:
    async with local_cache(folder, race=False) as cache, racing(cache) as running:
        await store(running)
        assert (await running.post(NEAR)).headers["x-cache"] == "semantic"
        assert running.requests() == [1]
        assert await counted(running) == (0, 0)


async def test_without_a_race_and_a_hit_the_engine_is_asked_after_the_look_up(folder: Path) -> None:
    async with local_cache(folder, race=False) as cache, racing(cache) as running:
        with cache.store.held("look_up"):
            async with meanwhile(running.post(ASKED)) as asked:

                async def looking() -> bool:
                    return cache.store.begun["look_up"] == 1

                assert await eventually(looking, within_s=5)
                assert running.requests() == [0]
                cache.store.let("look_up")
                assert (await asked).headers["x-cache"] == "miss"


async def test_who_leaves_during_a_race_leaves_nothing_behind(cache: LocalCache) -> None:
    async with racing(cache) as running:
        engine = running.engines[0]
        await engine.set_faults(SLOW_TO_BEGIN)
        with cache.store.held("look_up"):
            async with meanwhile(running.post(ASKED)) as asked:
                await engine.until(lambda stats: stats.requests == 1)
                asked.cancel()
                async with asyncio.timeout(2):
                    await engine.until(lambda stats: stats.aborted == 1)
            await running.until_idle()


async def test_who_leaves_while_the_look_up_is_being_cancelled_leaves_nothing_behind(
    cache: LocalCache,
) -> None:
    """The engine was first; a call through Ray may take its time to be cancelled."""
    async with racing(cache, SimSettings(itl_ms=20, tokens=10_000)) as running:
        engine = running.engines[0]
        with cache.store.held("look_up", stubborn=True):
            async with meanwhile(running.post(ASKED, stream=True)) as asked:
                await until_cancelled(cache, "look_up")
                asked.cancel()
                await asyncio.wait([asked])
        async with asyncio.timeout(5):
            await engine.until(lambda stats: stats.aborted == 1)
        await running.until_idle()


async def until_cancelled(cache: LocalCache, method: str) -> None:
    async def cancelled() -> bool:
        return cache.store.cancelled[method] == 1

    assert await eventually(cancelled, within_s=5)


async def test_a_hit_for_the_first_client_does_not_take_the_engine_from_those_that_joined(
    cache: LocalCache,
) -> None:
    async with racing(cache) as running:
        expected = await store(running)
        await running.engines[0].set_faults(Faults(first_byte_ms=400))
        with cache.store.held("look_up"):
            async with meanwhile(running.post(NEAR)) as first:
                await running.engines[0].until(lambda stats: stats.requests == 2)
                async with meanwhile(running.post(NEAR)) as second:
                    await running.until_traffic(lambda traffic: traffic["joined"] == 1)
                    cache.store.let("look_up")
                    hit, joined = await first, await second
        assert (hit.text, hit.headers["x-cache"]) == (expected, "semantic")
        assert (joined.status, joined.headers["x-cache"]) == (200, "joined")
        assert joined.text
        assert running.engines[0].stats().aborted == 0


async def test_a_tenants_answer_is_no_hit_for_another(cache: LocalCache) -> None:
    async with racing(cache, tenants=["a", "b"]) as running:
        await store(running, headers=running.headers("a"))
        await running.engines[0].set_faults(Faults(first_byte_ms=300))
        answer = await running.post(NEAR, running.headers("b") | {"x-cache-threshold": "0"})
        assert answer.headers["x-cache"] == "miss"
        assert (await running.post(NEAR, running.headers("a"))).headers["x-cache"] == "semantic"
