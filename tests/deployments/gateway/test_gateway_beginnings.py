"""A client whose gateway was killed asks again at another one, and finds its answer's beginning."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cache import LocalCache, local_cache
from sim_engine import SimEngine
from support.gateway import (
    MODEL,
    Answered,
    Band,
    Closable,
    Faults,
    Running,
    SimSettings,
    Stream,
    gateway,
    meanwhile,
)
from support.handles import Replicas

from serve_app.fleet import EngineReport, EngineState
from serve_app.openai.continuation import RESUME_PATH, TOLD_FIELD

TOKENS, SAID = 40, 6
SLOW = SimSettings(itl_ms=10, tokens=TOKENS, keep_bodies=16)
TWO = {"gateway": {"replicas": 2}}
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


@dataclass
class Pair:
    """Two gateways before one engine of their own; ``survivor`` is the second one's name."""

    one: Running
    two: Running
    engine: SimEngine
    band: Band
    survivor: str
    kill: Callable[[], Coroutine[Any, Any, None]]

    async def cut(self, text: str = "hi", headers: dict[str, str] | None = None, **fields: Any) -> None:
        """A stream of the first gateway that ends with it."""
        async with self.one.stream(text, headers, **fields) as stream:
            await contents(stream, SAID)
            await self.tell()
            await self.die()

    async def die(self) -> None:
        """Nobody is told of it."""
        (dying,) = (each for each in self.band.runtimes if each.together.share.gateway != self.survivor)
        assert dying.together.beginnings is not None
        await dying.together.beginnings.close()
        await self.kill()

    async def tell(self) -> None:
        """What gateways do once a second."""
        for runtime in self.band.runtimes:
            assert runtime.together.beginnings is not None
            await runtime.together.beginnings.tell()

    def told(self) -> list[int]:
        """How many tokens the engine was told, for each request that said any."""
        bodies = [
            json.loads(each["body"]) for each in self.engine.stats().seen if each["path"] == RESUME_PATH
        ]
        return [sum(map(len, body[TOLD_FIELD])) for body in bodies]


@asynccontextmanager
async def pair(cache: LocalCache, speed: SimSettings = SLOW, **args: Any) -> AsyncIterator[Pair]:
    engine, band = SimEngine(speed), Band()
    url = await engine.start()
    report = EngineReport("e0", MODEL, url, {}, EngineState.READY, capacity=8, resumes_chats=True)
    given: dict[str, Any] = {"handles": cache.handles, "band": band, "deployed": Replicas(report)}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        second = await stack.enter_async_context(gateway(**given, **TWO, **cache.args, **args))
        first = Closable(gateway(**given, **TWO, **cache.args, **args))
        stack.push_async_callback(first.close)
        one = await first.open()
        await band.meet()
        survivor = band.runtimes[0].together.share.gateway
        yield Pair(one, second, engine, band, survivor, first.close)


async def contents(stream: Stream, count: int) -> None:
    for _ in range(count):
        await stream.event()


async def undisturbed(both: Pair, **fields: Any) -> Answered:
    return await both.two.post("hi", {"cache-control": "no-store"}, stream=True, **fields)


async def test_the_killed_gateway_s_own_client_finds_the_beginning_of_its_answer(cache: LocalCache) -> None:
    async with pair(cache) as both:
        whole = await undisturbed(both, **USAGE)
        is_race = cache.settings["race"]
        if is_race:  # an answer that began before its look-up was at the cache would be announced to nobody
            await both.engine.set_faults(Faults(first_byte_ms=500))
        await both.cut(**USAGE)
        if is_race:
            await both.engine.set_faults(Faults(first_byte_ms=60_000))
        with cache.store.held("look_up") if is_race else nullcontext():
            async with meanwhile(both.two.post("hi", stream=True, **USAGE)) as asking:
                if is_race:  # the request that races the look-up is there before it ends, and does not begin
                    await both.engine.until(lambda stats: stats.requests == 3)
                    await both.engine.set_faults(Faults())
                    cache.store.let("look_up")
                again = await asking
        assert (again.headers["x-cache"], again.text) == ("miss", whole.text)
        assert again.chunks[-1]["usage"] == whole.chunks[-1]["usage"]
        (told,) = both.told()
        assert told >= SAID - 1  # the first event has no token
        assert (await both.two.traffic())["continued"] == 1
        assert (await both.two.post("hi", stream=True, **USAGE)).headers["x-cache"] == "exact"
        await both.two.until_idle()


async def test_a_retry_that_another_one_joins_is_asked_for_once(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        await both.cut()
        async with both.two.stream("hi") as again, both.two.stream("hi") as other:
            assert (again.headers["x-cache"], other.headers["x-cache"]) == ("miss", "joined")
            assert (await again.rest()).text == (await other.rest()).text
        assert len(both.told()) == 1


async def test_rounds_tell_all_that_was_said_until_then(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        whole = await undisturbed(both)
        async with both.one.stream("hi") as stream:
            await contents(stream, SAID)
            await both.tell()
            await contents(stream, SAID)
            with quiet_cache.store.failing("tell"):
                await both.tell()
            await contents(stream, SAID)
            await both.tell()
            await contents(stream, SAID)
            await both.die()
        assert (await both.two.post("hi", stream=True)).text == whole.text
        (told,) = both.told()
        assert 3 * SAID - 1 <= told < 4 * SAID  # the first event has no token


# ---- who finds nothing ----


async def test_only_the_same_request_of_the_same_tenant_finds_it(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache, tenants=("acme", "globex")) as both:
        await both.cut(headers=both.one.headers("acme"))
        acme, globex = both.two.headers("acme"), both.two.headers("globex")
        others: list[tuple[dict[str, str], dict[str, Any]]] = [
            (globex, {}),
            (acme, {"max_tokens": 30}),
            (acme, {"top_p": 0.5}),
            (acme, {"temperature": 0.5}),
            (acme | {"cache-control": "no-store"}, {}),
        ]
        asked = (both.two.post("hi", headers, stream=True, **fields) for headers, fields in others)
        assert all(answer.text for answer in await asyncio.gather(*asked))
        assert both.told() == []
        assert (await both.two.post("hi", acme, stream=True)).text
        assert len(both.told()) == 1


async def test_an_answer_that_may_not_be_shared_is_not_told(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        no_store, no_cache = ({"cache-control": said} for said in ("no-store", "no-cache"))
        async with both.one.stream("hi", no_store) as one, both.one.stream("hi", no_cache) as other:
            await contents(one, SAID)
            await contents(other, SAID)
            await both.tell()
        assert "tell" not in quiet_cache.store.begun


async def test_nothing_is_found_after_a_purge(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        await both.cut()
        async with both.two.http.delete("/admin/cache", params={"model": MODEL}) as response:
            assert response.status == 200
        assert (await both.two.post("hi", stream=True)).text
        assert both.told() == []


async def test_nothing_is_told_where_the_setting_says_so(folder: Path) -> None:
    async with local_cache(folder, race=False, keep_beginnings=False) as cache, pair(cache) as both:
        async with both.one.stream("hi") as stream:
            await contents(stream, SAID)
        assert all(each.together.beginnings is None for each in both.band.runtimes)


async def test_an_answer_that_has_ended_is_no_longer_kept(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        async with both.one.stream("hi") as stream:
            await contents(stream, SAID)
            await both.tell()
            await stream.rest()
        kept = quiet_cache.store.target._beginnings
        assert len(kept) == 1
        await both.one.until_idle()
        await both.tell()
        assert (len(kept), kept.size) == (0, 0)


# ---- when it goes wrong ----


async def test_without_the_cache_s_answer_the_retry_begins_anew(quiet_cache: LocalCache) -> None:
    async with pair(quiet_cache) as both:
        await both.cut()
        with quiet_cache.store.failing("beginning"):
            assert (await both.two.post("hi", stream=True)).text
        assert both.told() == []


async def test_guards_judge_the_beginning_as_all_of_it(quiet_cache: LocalCache) -> None:
    guard = {"name": "shouts", "function": "guarded:shouts", "when": "after", "piece_chars": 10}
    async with pair(quiet_cache, guardrails=[guard]) as both:
        await both.cut()
        again = await both.two.post("hi", stream=True)
        assert len(both.told()) == 1
        assert again.text == again.text.upper() != ""
