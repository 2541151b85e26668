"""Identical requests in flight share one request to an engine."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from local_cache import LocalCache, local_cache
from scripted_member import Member, begin, chunk, cut, listening
from support.gateway import DONE, Answered, Faults, Running, SimSettings, Stream, chat, gateway, meanwhile
from support.graph import CHAT

SLOW = SimSettings(itl_ms=10, tokens=30)
"""A third of a second: long enough to be joined."""

ENDLESS = SimSettings(itl_ms=20, tokens=10_000)
ENDS_NOT = {"ignore_eos": True}
ONE = {"max_requests": 1}
USAGE = {"stream_options": {"include_usage": True}}
USAGE_CHUNK = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


def cached(cache: LocalCache, *settings: SimSettings, **args: Any) -> Any:
    return gateway(*settings, handles=cache.handles, **(cache.args | args))


class Dictated:
    """A member that says what it is told, when it is told: one event at a time."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.member = Member(self._answer)

    def say(self, *events: bytes) -> None:
        for event in events:
            self.told.put_nowait(b"data: " + event + b"\n\n")

    def finish(self) -> None:
        self.say(chunk("", finish_reason="stop"), _usage(), DONE)
        self.told.put_nowait(b"")

    def fail(self) -> None:
        self.told.put_nowait(None)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.set()
        response = await begin(request)
        try:
            while data := await self.told.get():
                await response.write(data)
            if data is None:
                await cut(request)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response


def _usage() -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "sim"}
    return json.dumps(head | {"choices": [], "usage": USAGE_CHUNK}, separators=(",", ":")).encode()


@asynccontextmanager
async def dictated(cache: LocalCache, **args: Any) -> AsyncIterator[tuple[Running, Dictated]]:
    told = Dictated()
    async with listening(told.member):
        others = [told.member.upstream(health_period_s=60.0)]
        async with cached(cache, others=others, **args) as running:
            yield running, told


async def words(stream: Stream, count: int) -> str:
    events = [json.loads(await stream.event()) for _ in range(count)]
    return "".join(event["choices"][0]["delta"]["content"] for event in events)


# ---- one request for all ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_identical_requests_share_one_request_to_an_engine(cache: LocalCache, stream: bool) -> None:
    async with cached(cache, SLOW, SLOW) as running:
        answers = await asyncio.gather(*(running.post("hi", stream=stream) for _ in range(12)))
        assert len({answer.text for answer in answers}) == 1
        assert len({answer.body for answer in answers}) == 1
        assert sum(running.requests()) == 1
        found = [answer.headers["x-cache"] for answer in answers]
        assert (found.count("miss"), found.count("joined")) == (1, 11)
        assert len({answer.headers["x-served-by"] for answer in answers}) == 1
        traffic = await running.traffic()
        assert (traffic["joined"], traffic["requests"]) == (11, 1)
        await running.until_idle()
        assert (await running.post("hi", stream=stream)).headers["x-cache"] == "exact"


async def test_requests_that_wait_for_a_place_are_joined_too(cache: LocalCache) -> None:
    async with cached(cache, SLOW, upstream={"max_requests": 1}) as running, running.stream("first"):
        asked = [meanwhile(running.post("hi", stream=True)) for _ in range(3)]
        async with asked[0] as one, asked[1] as two, asked[2] as three:
            await running.until_traffic(lambda traffic: traffic["joined"] == 2)
            answers = await asyncio.gather(one, two, three)
        assert len({answer.text for answer in answers}) == 1
        assert running.requests() == [2]


async def test_who_joins_gets_everything_so_far_at_once_and_then_what_comes(cache: LocalCache) -> None:
    async with dictated(cache) as (running, told):
        told.say(chunk("a"), chunk("b"), chunk("c"))
        async with running.stream("hi") as first:
            assert await words(first, 3) == "abc"
            async with running.stream("hi") as second:
                assert second.headers["x-cache"] == "joined"
                assert second.headers["content-type"] == first.headers["content-type"]
                assert await words(second, 3) == "abc"
                told.say(chunk("d"))
                assert (await words(first, 1), await words(second, 1)) == ("d", "d")
                told.finish()
                ends = await asyncio.gather(first.rest(), second.rest())
        assert ends[0].body == ends[1].body
        assert ends[0].body.endswith(b"data: [DONE]\n\n")
        assert len(told.member.seen) == 1


async def test_an_answer_that_ended_is_found_in_memory_by_the_next(cache: LocalCache) -> None:
    async with dictated(cache) as (running, told):
        told.say(chunk("a"))
        told.finish()
        assert (await running.post("hi", stream=True)).headers["x-cache"] == "miss"
        assert (await running.post("hi", stream=True)).headers["x-cache"] == "exact"
        assert len(told.member.seen) == 1


# ---- who leaves ----


async def test_the_first_client_may_leave(cache: LocalCache) -> None:
    async with dictated(cache) as (running, told):
        told.say(chunk("a"))
        async with running.stream("hi") as first, running.stream("hi") as second:
            assert (await words(first, 1), await words(second, 1)) == ("a", "a")
            first.leave()
            told.say(chunk("b"))
            assert await words(second, 1) == "b"
            told.finish()
            assert (await second.rest()).events[-1] == DONE
        assert not told.left.is_set()
        assert (await running.post("hi", stream=True)).headers["x-cache"] == "exact"
        await running.until_idle()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_first_client_may_leave_before_the_first_byte(cache: LocalCache, stream: bool) -> None:
    async with cached(cache, SLOW) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=300))
        async with meanwhile(running.post("hi", stream=stream)) as first:
            await running.engines[0].until(lambda stats: stats.requests == 1)
            async with meanwhile(running.post("hi", stream=stream)) as second:
                await running.until_traffic(lambda traffic: traffic["joined"] == 1)
                first.cancel()
                answer = await second
        assert answer.text
        assert answer.headers["x-cache"] == "joined"
        stats = running.engines[0].stats()
        assert (stats.requests, stats.aborted) == (1, 0)


async def test_the_last_client_to_leave_aborts_the_engine(cache: LocalCache) -> None:
    async with cached(cache, ENDLESS) as running:
        engine = running.engines[0]
        async with running.stream("hi") as first, running.stream("hi") as second:
            first.leave()
            await second.event()
            assert engine.stats().aborted == 0
            second.leave()
            async with asyncio.timeout(5):
                await engine.until(lambda stats: stats.aborted == 1 and stats.running == 0)
        await running.until_idle()
        async with running.stream("hi") as third:
            assert third.headers["x-cache"] == "miss"


async def test_a_joined_client_that_leaves_hurts_nobody(cache: LocalCache) -> None:
    async with cached(cache, SLOW) as running, running.stream("hi") as first:
        await first.event()
        async with running.stream("hi") as second:
            assert second.headers["x-cache"] == "joined"
            second.leave()
        assert (await first.rest()).events[-1] == DONE


async def test_the_first_clients_deadline_is_only_its_own(cache: LocalCache) -> None:
    async with dictated(cache) as (running, told):
        told.say(chunk("a"))
        async with (
            running.stream("hi", {"x-request-timeout-ms": "600"}) as first,
            running.stream("hi") as second,
        ):
            assert second.headers["x-cache"] == "joined"
            assert (await first.rest()).cut["code"] == "deadline_exceeded"
            told.say(chunk("b"))
            assert await words(second, 2) == "ab"
            told.finish()
            assert (await second.rest()).events[-1] == DONE


async def test_the_first_clients_deadline_is_only_its_own_in_line_too(cache: LocalCache) -> None:
    async with cached(cache, SLOW, upstream=ONE) as running, AsyncExitStack() as stack:
        place = await stack.enter_async_context(running.stream("in the way", **ENDS_NOT))
        hurried = meanwhile(running.post("hi", {"x-request-timeout-ms": "400"}))
        first = await stack.enter_async_context(hurried)
        await running.until_traffic(lambda traffic: traffic["queued"] == 1)
        second = await stack.enter_async_context(meanwhile(running.post("hi")))
        await running.until_traffic(lambda traffic: traffic["joined"] == 1)
        assert (await first).status in (429, 504)
        place.leave()
        assert (await second).status == 200


async def test_who_joins_a_less_urgent_request_does_not_wait_longer_for_it(cache: LocalCache) -> None:
    quick = SimSettings(itl_ms=2, tokens=2, keep_bodies=8)
    async with cached(cache, quick, upstream=ONE) as running, AsyncExitStack() as stack:
        place = await stack.enter_async_context(running.stream("in the way", **ENDS_NOT))
        asked: list[asyncio.Task[Answered]] = []
        for text, priority in (("same", "9"), ("other", "5"), ("same", "0")):
            work = meanwhile(running.post(text, {"x-priority": priority}))
            asked.append(await stack.enter_async_context(work))
            await running.until_traffic(lambda t: t["joined"] + t["queued"] == len(asked))
        place.leave()
        answers = await asyncio.gather(*asked)
        assert [answer.status for answer in answers] == [200] * 3
        seen = [json.loads(request["body"]) for request in running.engines[0].stats().seen]
        assert [body["messages"][0]["content"] for body in seen][:3] == ["in the way", "same", "other"]


# ---- who may join ----


async def test_streams_and_whole_answers_are_not_mixed(cache: LocalCache) -> None:
    async with cached(cache, SLOW) as running:
        whole, stream = await asyncio.gather(running.post("hi"), running.post("hi", stream=True))
        assert whole.text == stream.text
        assert whole.headers["content-type"] == "application/json"
        assert [whole.headers["x-cache"], stream.headers["x-cache"]] == ["miss", "miss"]
        assert running.requests() == [2]


async def test_usage_is_shown_to_those_who_asked_for_it(cache: LocalCache) -> None:
    async with cached(cache, SLOW) as running:
        asked = [{}, USAGE, {}, USAGE, {"stream_options": {"include_usage": False}}]
        answers = await asyncio.gather(*(running.post("hi", stream=True, **each) for each in asked))
        assert running.requests() == [1]
        assert len({answer.text for answer in answers}) == 1
        shown = [[each["usage"] for each in answer.chunks if each.get("usage")] for answer in answers]
        assert [len(usages) for usages in shown] == [0, 1, 0, 1, 0]
        assert shown[1] == shown[3]


DIFFERENT: dict[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: chat("hi!", stream=True),
    "temperature": lambda: chat("hi", stream=True, temperature=0),
    "max_tokens": lambda: chat("hi", stream=True, max_tokens=99),
    "another field": lambda: chat("hi", stream=True, x_new=1),
    "earlier message": lambda: (
        chat("hi", stream=True)
        | {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_another_request_is_never_joined(cache: LocalCache, name: str) -> None:
    async with cached(cache, SLOW) as running, running.stream("hi"):
        answer = await running.send(DIFFERENT[name]())
        assert answer.headers["x-cache"] != "joined"
        assert running.requests() == [2]


@pytest.mark.parametrize("directive", ["no-cache", "no-store"])
async def test_who_wants_a_fresh_answer_neither_joins_nor_is_joined(
    cache: LocalCache, directive: str
) -> None:
    async with cached(cache, SLOW) as running:
        plain, fresh = {}, {"cache-control": directive}
        answers = await asyncio.gather(
            *(running.post("hi", headers, stream=True) for headers in (plain, fresh, fresh, plain))
        )
        assert [answer.headers["x-cache"] for answer in answers] == ["miss", "miss", "miss", "joined"]
        assert running.requests() == [3]


async def test_tenants_never_share_an_answer_in_flight(cache: LocalCache) -> None:
    async with cached(cache, SLOW, tenants=["a", "b"]) as running:
        asked = ["a", "b", "a", "b"]
        answers = await asyncio.gather(
            *(running.post("hi", running.headers(tenant), stream=True) for tenant in asked)
        )
        assert [answer.headers["x-cache"] for answer in answers] == ["miss", "miss", "joined", "joined"]
        assert running.requests() == [2]
        assert (await running.post("hi", {"authorization": "Bearer pk-x-y"})).status == 401


async def test_joining_can_be_turned_off(folder: Path) -> None:
    async with local_cache(folder, race=False, join=False) as cache, cached(cache, SLOW) as running:
        answers = await asyncio.gather(*(running.post("hi", stream=True) for _ in range(3)))
        assert [answer.headers["x-cache"] for answer in answers] == ["miss"] * 3
        assert running.requests() == [3]


async def test_a_model_that_is_not_cached_is_not_joined(cache: LocalCache) -> None:
    async with cached(cache, SLOW, model={"cache": False}) as running:
        answers = await asyncio.gather(*(running.post("hi", stream=True) for _ in range(3)))
        assert [answer.headers["x-cache"] for answer in answers] == ["bypass"] * 3
        assert running.requests() == [3]


async def test_without_a_cache_nothing_is_joined() -> None:
    async with gateway(SLOW) as running:
        await asyncio.gather(*(running.post("hi", stream=True) for _ in range(3)))
        assert running.requests() == [3]


async def test_who_wants_failover_does_not_join_an_answer_without(cache: LocalCache) -> None:
    """The shared stream would end where the engine dies, though this client never said that it may."""
    upstreams = [{"priority": 0}, {"priority": 1}]
    async with cached(cache, SLOW, SLOW, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(die_after=15))
        frail, plain = await asyncio.gather(
            running.post("hi", {"x-failover": "off"}, stream=True), running.post("hi", stream=True)
        )
        assert frail.cut["code"] == "upstream_failed"
        assert plain.text


# ---- when it goes wrong ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_error_reaches_everyone_as_the_same_error(cache: LocalCache, stream: bool) -> None:
    async with cached(cache, SLOW) as running:
        await running.engines[0].set_faults(Faults(first_byte_ms=300, die_after=0))
        answers = await asyncio.gather(*(running.post("hi", stream=stream) for _ in range(4)))
        assert [answer.status for answer in answers] == [502] * 4
        assert {answer.error["code"] for answer in answers} == {"upstream_failed"}
        assert running.requests() == [1]
        await running.engines[0].set_faults(Faults())
        again = await running.post("hi", stream=stream)
        assert (again.status, again.headers["x-cache"]) == (200, "miss")


async def test_a_refusal_reaches_everyone_with_its_status(cache: LocalCache) -> None:
    async with cached(cache, SimSettings(max_model_len=4, itl_ms=0)) as running:
        answers = await asyncio.gather(*(running.post("too long for it", stream=True) for _ in range(3)))
        assert {(answer.status, answer.error["type"]) for answer in answers} == {
            (400, "invalid_request_error")
        }


async def test_a_cut_reaches_everyone_as_an_error_event_and_is_not_stored(cache: LocalCache) -> None:
    async with dictated(cache) as (running, told):
        told.say(chunk("a"))
        async with running.stream("hi") as first, running.stream("hi") as second:
            assert (await words(first, 1), await words(second, 1)) == ("a", "a")
            told.fail()
            for stream in (first, second):
                assert (await stream.rest()).cut["code"] == "upstream_failed"
        assert (await running.traffic())["cut"] == 2
        told.say(chunk("b"))
        told.finish()
        again = await running.post("hi", stream=True)
        assert (again.text, again.headers["x-cache"]) == ("b", "miss")


async def test_a_continuation_is_everyones(cache: LocalCache) -> None:
    upstreams = [{"priority": 0}, {"priority": 1}]
    async with cached(cache, SLOW, SLOW, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(die_after=15))
        answers = await asyncio.gather(*(running.post("hi", stream=True) for _ in range(4)))
        assert len({answer.text for answer in answers}) == 1
        assert running.requests() == [1, 1]
        assert (await running.traffic())["continued"] == 1
        assert (await running.post("hi")).headers["x-cache"] == "exact"


async def test_a_continuation_outlives_the_client_that_was_waiting_for_it(cache: LocalCache) -> None:
    """Who reads for all may be cancelled while another member is being asked."""
    upstreams = [{"priority": 0}, {"priority": 1}]
    async with cached(cache, SLOW, SLOW, upstreams=upstreams) as running:
        lost, other = running.engines
        await lost.set_faults(Faults(die_after=5))
        await other.set_faults(Faults(first_byte_ms=300))
        async with running.stream("hi") as first, running.stream("hi") as second:
            await other.until(lambda stats: stats.requests == 1)
            first.leave()
            assert (await second.rest()).text
        assert (await running.traffic())["cut"] == 0
        await running.until_idle()


# ---- who does not read ----


@pytest.mark.parametrize("slow_one", ["first", "joined"])
async def test_a_reader_that_falls_too_far_behind_is_cut_off_and_delays_nobody(
    cache: LocalCache, slow_one: str
) -> None:
    big = chunk("x" * 65_000)
    events = 300
    limits = {"max_stream_buffer_bytes": 1_048_576}
    async with dictated(cache, limits=limits) as (running, told), AsyncExitStack() as stack:
        told.say(chunk("a"))
        quick, slow = running.stream("hi"), reading_nothing(running, chat("hi", stream=True))
        if slow_one == "first":
            client = await stack.enter_async_context(slow)
            await told.asked.wait()
            stream = await stack.enter_async_context(quick)
        else:
            stream = await stack.enter_async_context(quick)
            client = await stack.enter_async_context(slow)
        await running.until_traffic(lambda traffic: traffic["joined"] == 1)
        told.say(*[big] * events)
        told.finish()
        whole = await stream.rest()
        assert whole.events[-1] == DONE
        assert len(whole.body) > events * 65_000
        received = await asyncio.wait_for(client.read(), 10)
        assert b'"code":"slow_reader"' in received[-2000:]
        assert len(received) < len(whole.body)


async def test_a_place_is_free_when_the_engine_is_done_though_a_joined_client_still_reads(
    cache: LocalCache,
) -> None:
    big = chunk("x" * 65_000)
    limits = {"max_stream_buffer_bytes": 64_000_000}
    async with dictated(cache, limits=limits) as (running, told), AsyncExitStack() as stack:
        told.say(chunk("a"))
        stream = await stack.enter_async_context(running.stream("hi"))
        body = chat("hi", stream=True)
        slow = await stack.enter_async_context(reading_nothing(running, body))
        await running.until_traffic(lambda traffic: traffic["joined"] == 1)
        told.say(*[big] * 300)
        told.finish()
        await stream.rest()
        await running.until_idle()
        received = await asyncio.wait_for(slow.read(), 10)
        assert b"[DONE]" in received[-2000:]


class SlowClient:
    """Has sent a request, and reads nothing of the answer until told to."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        """Everything, until the other side closes."""
        loop = asyncio.get_running_loop()
        parts = []
        while part := await loop.sock_recv(self._connection, 1 << 20):
            parts.append(part)
        return b"".join(parts)


@asynccontextmanager
async def reading_nothing(running: Running, body: dict[str, Any]) -> AsyncIterator[SlowClient]:
    """A client whose window is as small as can be."""
    data, address = json.dumps(body).encode(), urlsplit(running.url)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, (address.hostname, address.port))
        await loop.sock_sendall(connection, head.encode() + data)
        yield SlowClient(connection)
