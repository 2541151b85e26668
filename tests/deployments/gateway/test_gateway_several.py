"""Several gateways of one application: identical requests at two of them share one request to an engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from local_cache import LocalCache
from sim_engine import SimEngine
from support.gateway import Band, Closable, Faults, Running, SimSettings, Stream, gateway, meanwhile
from support.graph import eventually
from support.semantic_cache import open_semantic_cache

from serve_app.settings import CacheSettings

SLOW = SimSettings(itl_ms=10, tokens=30)
LONG = SimSettings(itl_ms=20, tokens=60)
ENDLESS = SimSettings(itl_ms=20, tokens=10_000)
YEAR_NS = 365 * 24 * 3600 * 10**9
TWO = {"gateway": {"replicas": 2}}


@dataclass
class Two:
    """``close_two`` ends the second gateway before the first; ``third`` makes one more; ``look``: a round."""

    one: Running
    two: Running
    engine: SimEngine
    close_two: Callable[[], Coroutine[Any, Any, None]]
    third: Callable[[], AbstractAsyncContextManager[Running]]
    look: Callable[[], Coroutine[Any, Any, None]]

    def asked(self) -> int:
        return self.engine.stats().requests

    async def joined(self) -> int:
        return (await self.one.traffic())["joined"] + (await self.two.traffic())["joined"]


@asynccontextmanager
async def two_gateways(
    cache: LocalCache, speed: SimSettings, upstream: dict[str, Any] | None = None, **args: Any
) -> AsyncIterator[Two]:
    """Before the same engine, with the same cache."""
    engine, band = SimEngine(speed), Band()
    url = await engine.start()
    member = {"name": "e0", "url": f"{url}/v1", "kind": "vllm", "health_period_s": 0.05, **(upstream or {})}
    given: dict[str, Any] = {"handles": cache.handles, "band": band, "others": [member]}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        one = await stack.enter_async_context(gateway(**given, **TWO, **cache.args, **args))
        second = Closable(gateway(**given, **TWO, **cache.args, **args))
        stack.push_async_callback(second.close)
        two = await second.open()
        await band.meet()

        @asynccontextmanager
        async def third() -> AsyncIterator[Running]:
            async with gateway(**given, **TWO, **cache.args, **args) as running:
                await band.meet()
                yield running

        yield Two(one, two, engine, second.close, third, band.look)


async def contents(stream: Stream, count: int) -> None:
    for _ in range(count):
        await stream.event()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_identical_requests_at_two_gateways_share_one_answer(cache: LocalCache, stream: bool) -> None:
    async with two_gateways(cache, SLOW) as both:
        await both.engine.set_faults(Faults(first_byte_ms=300))
        async with meanwhile(both.one.post("hi", stream=stream)) as first:
            await both.engine.until(lambda stats: stats.requests == 1)
            await look_up_ended(cache)
            others = await asyncio.gather(*(both.two.post("hi", stream=stream) for _ in range(4)))
            answer = await first
        assert {other.body for other in others} == {answer.body}
        assert {other.headers["x-cache"] for other in others} == {"joined"}
        assert {other.headers["x-served-by"] for other in others} == {answer.headers["x-served-by"]}
        assert (both.asked(), await both.joined()) == (1 + await raced(both.two), 4)
        for running in (both.one, both.two):
            assert (await running.post("hi", stream=stream)).headers["x-cache"] == "exact"
            await running.until_idle()


async def raced(running: Running) -> int:
    """Requests that an engine got while the look-up was on its way; they were given up."""
    return (await running.traffic())["raced"]


async def look_up_ended(cache: LocalCache) -> None:
    async def ended() -> bool:
        return cache.store.ended["look_up"] >= 1

    assert await eventually(ended, within_s=5)


async def test_a_stream_that_has_begun_is_joined_with_all_that_was_said(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, LONG) as both, both.one.stream("hi") as first:
        await contents(first, 5)
        async with both.two.stream("hi") as second:
            assert second.headers["x-cache"] == "joined"
            ends = await asyncio.gather(first.rest(), second.rest())
        assert ends[1].text.endswith(ends[0].text)
        assert both.asked() == 1


async def test_nothing_more_is_called_on_a_miss(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        await both.one.post("hi")
        assert quiet_cache.store.begun["look_up"] == 1
        assert set(quiet_cache.store.begun) <= {"look_up", "put", "stats", "used"}


async def test_tenants_never_share(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW, tenants=("acme", "globex")) as both:
        asked = [
            both.one.post("hi", both.one.headers("acme"), stream=True),
            both.two.post("hi", both.two.headers("globex"), stream=True),
            both.two.post("hi", both.two.headers("acme"), stream=True),
        ]
        answers = await asyncio.gather(*asked)
        assert both.asked() == 2
        assert [answer.headers["x-cache"] for answer in answers].count("joined") == 1
        assert answers[1].headers["x-cache"] == "miss"


async def test_requests_that_must_be_fresh_are_not_shared(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW) as both, both.one.stream("hi"):
        assert (await both.two.post("hi", {"cache-control": "no-cache"}, stream=True)).headers[
            "x-cache"
        ] == "miss"


# ---- who leaves ----


async def test_the_owner_s_client_may_leave(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, LONG) as both, both.one.stream("hi") as first:
        await contents(first, 3)
        async with both.two.stream("hi") as second:
            first.leave()
            assert (await second.rest()).text
        assert (both.asked(), both.engine.stats().aborted) == (1, 0)
        assert (await both.one.post("hi", stream=True)).headers["x-cache"] == "exact"


async def test_the_last_client_to_leave_at_any_gateway_aborts_the_engine(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, ENDLESS) as both, both.one.stream("hi") as first:
        await contents(first, 3)
        async with both.two.stream("hi") as second:
            first.leave()
            await contents(second, 5)
            assert both.engine.stats().aborted == 0
            second.leave()
            async with asyncio.timeout(5):
                await both.engine.until(lambda stats: stats.aborted == 1 and stats.running == 0)
        await both.one.until_idle()
        await both.two.until_idle()


# ---- when it goes wrong ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_failure_is_everybody_s(quiet_cache: LocalCache, stream: bool) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        await both.engine.set_faults(Faults(first_byte_ms=300, die_after=0))
        async with meanwhile(both.one.post("hi", stream=stream)) as first:
            await both.engine.until(lambda stats: stats.requests == 1)
            second = await both.two.post("hi", stream=stream)
            answer = await first
        assert (second.status, second.error) == (answer.status, answer.error)
        assert both.asked() == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_gateway_that_ends_before_the_first_byte_costs_its_joiners_nothing(
    quiet_cache: LocalCache, stream: bool
) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        await both.engine.set_faults(Faults(first_byte_ms=400))
        async with meanwhile(both.two.post("hi", stream=stream)):
            await both.engine.until(lambda stats: stats.requests == 1)
            async with meanwhile(both.one.post("hi", stream=stream)) as second:
                await both.one.until_traffic(lambda traffic: traffic["joined"] == 1)
                await both.close_two()
                answer = await second
        assert answer.text
        assert both.asked() == 2
        assert (await both.one.post("hi", stream=stream)).headers["x-cache"] == "exact"
        await both.one.until_idle()


async def test_a_gateway_that_ends_in_the_middle_loses_none_of_its_joiners_streams(
    quiet_cache: LocalCache,
) -> None:
    async with two_gateways(quiet_cache, LONG) as both:
        whole = (await both.one.post("hi", {"cache-control": "no-store"}, stream=True)).text
        async with both.two.stream("hi") as first:
            await contents(first, 3)
            async with both.one.stream("hi") as second, both.one.stream("hi") as third:
                assert second.headers["x-cache"] == third.headers["x-cache"] == "joined"
                await contents(second, 8)
                await both.close_two()
                answers = [await second.rest(), await third.rest()]
        assert [answer.events[-1] for answer in answers] == [b"[DONE]"] * 2
        assert answers[1].text == whole
        assert whole.endswith(answers[0].text)
        assert (await both.one.post("hi")).headers["x-cache"] == "exact"
        await both.one.until_idle()


async def test_a_retry_finds_all_of_an_answer_that_another_client_of_its_gateway_had_joined(
    quiet_cache: LocalCache,
) -> None:
    async with two_gateways(quiet_cache, LONG) as both:
        whole = (await both.one.post("hi", {"cache-control": "no-store"}, stream=True)).text
        async with both.two.stream("hi") as first:
            await contents(first, 3)
            async with both.one.stream("hi") as second:
                await contents(second, 8)
                await both.close_two()
                retried = await both.one.post("hi", stream=True)
                await second.rest()
        assert (retried.headers["x-cache"], retried.text) == ("joined", whole)
        assert both.asked() == 3  # the whole one, the second gateway's, and the first's for both its clients


@pytest.mark.parametrize("had_joined", [True, False], ids=["had-joined", "asks-after"])
async def test_the_gateway_that_asks_for_a_lost_answer_again_is_joined_by_others(
    quiet_cache: LocalCache, had_joined: bool
) -> None:
    async with two_gateways(quiet_cache, ENDLESS) as both, both.third() as third, AsyncExitStack() as clients:
        lost = await clients.enter_async_context(both.two.stream("hi"))
        await contents(lost, 3)
        if had_joined:
            await contents(await clients.enter_async_context(both.one.stream("hi")), 3)
        await both.close_two()
        if not had_joined:
            await contents(await clients.enter_async_context(both.one.stream("hi")), 3)
        await both.engine.until(lambda stats: stats.requests == 2)
        # Its next look-up tells the cache.
        await contents(await clients.enter_async_context(both.one.stream("another")), 1)
        joining = await clients.enter_async_context(third.stream("hi"))
        assert joining.headers["x-cache"] == "joined"
        await contents(joining, 3)
        assert both.asked() == 3


async def test_a_registration_of_a_gateway_that_is_gone_costs_no_failure(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        async with both.two.stream("hi") as first:
            await contents(first, 1)
            await both.close_two()
        for _ in range(2):
            answer = await both.one.post("hi", stream=True)
            assert answer.text


# ---- invalidation ----


async def test_a_purge_at_one_gateway_empties_the_memory_of_the_other(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        await remembered_by_both(both, quiet_cache)
        await purge_at_one(both)
        assert await eventually(lambda: is_forgotten_by_two(both), within_s=5)


async def test_such_a_purge_counts_though_the_cache_started_again_on_a_clock_that_is_behind(
    quiet_cache: LocalCache,
) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        await remembered_by_both(both, quiet_cache)
        async with restarted(quiet_cache, behind_ns=YEAR_NS):
            assert not await is_forgotten_by_two(both)
            await purge_at_one(both)
            assert await eventually(lambda: is_forgotten_by_two(both), within_s=5)


@asynccontextmanager
async def restarted(cache: LocalCache, *, behind_ns: int) -> AsyncIterator[None]:
    """The cache has ended and started again on its store, with a clock that is behind the one before."""
    await cache.store.target.close()
    rules = CacheSettings(**cache.settings)
    again = await open_semantic_cache(rules, cache.embedder, clock_ns=lambda: time.time_ns() - behind_ns)
    cache.store.target = again
    try:
        yield
    finally:
        await again.close()


async def remembered_by_both(both: Two, cache: LocalCache) -> None:
    for running in (both.one, both.two):
        await running.post("hi")
    assert both.asked() == 1

    async def stored() -> bool:
        return bool(cache.store.ended["put"])

    assert await eventually(stored, within_s=5)


async def purge_at_one(both: Two) -> None:
    async with both.one.http.delete("/admin/cache", params={"model": "sim"}) as response:
        assert response.status == 200


async def is_forgotten_by_two(both: Two) -> bool:
    return (await both.two.post("hi")).headers["x-cache"] == "miss"


# ---- limits ----


async def test_a_limit_holds_for_all_gateways_together(quiet_cache: LocalCache) -> None:
    limits = {"max_concurrent_requests": 4}
    async with two_gateways(quiet_cache, ENDLESS, limits=limits) as both:
        asked = [
            running.http.post("/v1/chat/completions", json=body(f"{number} {name}"))
            for number in range(4)
            for name, running in (("one", both.one), ("two", both.two))
        ]
        answers = await asyncio.gather(*asked)
        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (4, 4)
        for answer in answers:
            answer.close()


async def test_what_one_gateway_runs_beyond_its_share_the_other_does_not_run_as_well(
    quiet_cache: LocalCache,
) -> None:
    """One has nearly the whole limit while nobody asks the other. Its streams go on as its share shrinks."""
    async with two_gateways(quiet_cache, ENDLESS, limits={"max_concurrent_requests": 4}) as both:
        held: list[aiohttp.ClientResponse] = []
        for number, running in enumerate([both.one] * 3 + [both.two] * 5):
            asked = [
                running.http.post("/v1/chat/completions", json=body(f"{each} {number}")) for each in range(6)
            ]
            held += [answer for answer in await asyncio.gather(*asked) if answer.status == 200]
            await both.look()
        assert (len(held), both.engine.stats().running) == (4, 4)
        for answer in held:
            answer.close()


def body(text: str) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": text}], "stream": True}


async def test_an_upstream_gets_no_more_than_it_takes_from_all_gateways_together(
    quiet_cache: LocalCache,
) -> None:
    async with two_gateways(quiet_cache, ENDLESS, upstream={"max_requests": 4}) as both:
        asked = [
            asyncio.ensure_future(running.http.post("/v1/chat/completions", json=body(f"{number} {name}")))
            for number in range(8)
            for name, running in (("one", both.one), ("two", both.two))
        ]

        async def queued() -> bool:
            return (await both.one.traffic())["queued"] + (await both.two.traffic())["queued"] == 12

        assert await eventually(queued, within_s=10)
        assert both.engine.stats().running == 4
        for task in asked:
            task.cancel()
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if not isinstance(answer, BaseException):
                answer.close()


# ---- an answer that has ended, and is not in the store yet ----


async def test_an_answer_that_the_store_does_not_have_yet_is_had_from_its_gateway(
    cache: LocalCache,
) -> None:
    """Without that, who asks in this moment begins the same answer again, and all others join that."""
    async with two_gateways(cache, SLOW) as both:
        with cache.store.held("put"):
            answer = await both.one.post("hi")
            await both.one.until_idle()
            others = [await both.two.post("hi") for _ in range(2)]
            assert [other.headers["x-cache"] for other in others] == ["exact", "exact"]
            assert {other.text for other in others} == {answer.text}
            assert both.asked() == 1 + await raced(both.two)
            stats = await both.two.get("/admin/cache")
            assert (stats["exact"], stats["misses"]) == (2, 0)


async def test_an_answer_that_is_not_stored_is_asked_for_again(quiet_cache: LocalCache) -> None:
    async with two_gateways(quiet_cache, SLOW) as both:
        cut = {"max_tokens": 3}  # an answer that was cut off is nobody else's
        assert (await both.one.post("hi", **cut)).headers["x-cache"] == "miss"
        await both.one.until_idle()
        assert (await both.two.post("hi", **cut)).headers["x-cache"] == "miss"
        assert both.asked() == 2
