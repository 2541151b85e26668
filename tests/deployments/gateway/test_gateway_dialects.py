"""Servers that speak OpenAI's format each a little differently: what the gateway adds does not show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from local_cache import LocalCache, local_cache
from scripted_member import Meddler, Member, begin, chunk, cut, listening, stall
from sim_engine import SimEngine
from support.gateway import DONE, Running, SimSettings, chat, gateway

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "sim"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


class Server:
    """Says one event at a time; the next when the last one has been read."""

    def __init__(self, *events: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> None:
        self._events = events
        self._then = then
        self.go_on = asyncio.Semaphore(0)
        self.over = asyncio.Event()
        """Set when the client has it all: then ``then`` happens."""
        self.member = Member(self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for event in self._events:
            await response.write(event)
            await self.go_on.acquire()
        if self._then is not None:
            await self.over.wait()
            await self._then(request)
        return response

    def finish(self) -> None:
        for _ in self._events:
            self.go_on.release()


@asynccontextmanager
async def serving(server: Server, cache: LocalCache | None = None, **args: Any) -> AsyncIterator[Running]:
    known = {} if cache is None else {"handles": cache.handles, **cache.args}
    async with listening(server.member):
        others = [server.member.upstream(health_period_s=60.0)]
        async with gateway(others=others, **known, **args) as running:
            yield running


def spoken(events: list[bytes], end: bytes = b"\n\n", field: bytes = b"data: ") -> list[bytes]:
    return [field + event + end for event in events]


def usage_event(**separators: Any) -> bytes:
    return json.dumps(HEAD | {"choices": [], "usage": USAGE}, **separators).encode()


def answer_of(events: list[bytes]) -> str:
    """The text of a stream's data, which no client would stumble over."""
    chunks = [json.loads(event) for event in events if event != DONE]
    assert all(each["choices"] for each in chunks), "a chunk without a choice was not asked for"
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks)


def data_of(body: bytes) -> list[bytes]:
    """As a client reads a stream: by lines, whatever ends them."""
    return [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]


WORDS = [chunk("one"), chunk(" two"), chunk("", finish_reason="stop")]
COMPACT = usage_event(separators=(",", ":"))
DIALECTS = {
    "plain": spoken([*WORDS, COMPACT, DONE]),
    "lines end in CR LF": spoken([*WORDS, COMPACT, DONE], b"\r\n\r\n"),
    "JSON with spaces": spoken([*WORDS, usage_event(), DONE]),
    "no space behind the colon": spoken([*WORDS, COMPACT, DONE], field=b"data:"),
    "comments between": [b": ping\n\n", *spoken(WORDS), b": ping\n\n", *spoken([COMPACT, DONE])],
    "events have names": spoken([*WORDS, COMPACT, DONE], field=b"event: message\ndata: "),
    "usage beside the last choice": spoken(
        [*WORDS[:2], json.dumps(json.loads(WORDS[2]) | {"usage": USAGE}).encode(), DONE]
    ),
    "no usage": spoken([*WORDS, DONE]),
}


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_stream_that_may_be_stored_comes_event_by_event_and_without_unwanted_usage(
    cache: LocalCache, name: str
) -> None:
    server = Server(*DIALECTS[name])
    async with serving(server, cache) as running, running.stream("hi") as stream:
        received = b""
        async with asyncio.timeout(5):
            while b"one" not in received:
                received += await stream.response.content.readany()
                server.go_on.release()
        assert b"[DONE]" not in received
        server.finish()
        received += (await stream.rest()).body
        events = data_of(received)
        assert events[-1] == DONE
        assert answer_of(events) == "one two"


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "no usage"])
async def test_what_is_stored_of_it_is_the_same_answer(cache: LocalCache, name: str) -> None:
    server = Server(*DIALECTS[name])
    server.finish()
    async with serving(server, cache) as running:
        await running.post("hi", stream=True)
        again = await running.post("hi")
        assert again.headers["x-cache"] == "exact"
        assert (again.text, again.json["usage"] | USAGE) == ("one two", again.json["usage"])


@pytest.mark.parametrize("name", DIALECTS)
async def test_without_a_cache_the_bytes_are_the_servers_own(name: str) -> None:
    server = Server(*DIALECTS[name])
    server.finish()
    async with serving(server) as running:
        answer = await running.post("hi", stream=True)
    assert answer.body == b"".join(DIALECTS[name])
    assert server.member.seen[0].fields == chat("hi", stream=True)


# ---- behind the end ----


@pytest.mark.parametrize("then", [cut, stall], ids=["cut", "stall"])
async def test_a_connection_that_is_lost_behind_the_end_loses_nothing(
    cache: LocalCache, then: Callable[[web.Request], Awaitable[None]]
) -> None:
    server = Server(*DIALECTS["plain"], then=then)
    server.finish()
    async with serving(server, cache, limits={"between_tokens_timeout_s": 0.3}) as running:
        async with running.stream("hi") as stream:
            while await stream.event() != DONE:
                pass
            server.over.set()
            assert (await stream.rest()).body == b""
        assert (await running.traffic())["cut"] == 0
        await running.until_idle()
        assert (await running.post("hi")).headers["x-cache"] == "exact"


async def test_a_vllm_that_stays_connected_behind_the_end_is_not_continued() -> None:
    engine = SimEngine(SimSettings(itl_ms=0, tokens=3))
    url = await engine.start()
    try:
        async with aiohttp.ClientSession() as http:
            member = Member(Meddler(http, url, passed=1 << 20, then="stall"))
            async with listening(member):
                others = [member.upstream(kind="vllm", health_period_s=60.0)]
                limits = {"between_tokens_timeout_s": 0.3}
                async with gateway(
                    SimSettings(), upstreams=[{"priority": 1}], others=others, limits=limits
                ) as running:
                    answer = await running.post("hi", stream=True)
                    assert (answer.events.count(DONE), bool(answer.text)) == (1, True)
                    traffic = await running.traffic()
                    assert (traffic["continued"], traffic["cut"]) == (0, 0)
                    assert running.requests() == [0]
    finally:
        await engine.stop()
