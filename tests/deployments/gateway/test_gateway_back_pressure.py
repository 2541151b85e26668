"""A client that does not read: nothing piles up in the gateway."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member, begin, chunk, listening
from support.gateway import Running, chat, gateway, meanwhile
from support.graph import eventually

EVENT = b"data: " + chunk("x" * 32_000) + b"\n\n"

MOST_BYTES = 32 << 20
"""What sockets may hold between an engine and its client: twice 6 MiB received and 4 MiB sent are Linux's
bounds, and the gateway's own few hundred KiB come on top."""

QUIET_S = 0.25


class Endless:
    """An engine that waits for its reader, and counts what it could send."""

    def __init__(self) -> None:
        self.member = Member(self._answer)
        self.sent = 0
        self.over = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        try:
            while True:
                await response.write(EVENT)
                self.sent += len(EVENT)
        finally:
            self.over.set()

    async def stands_still(self) -> int:
        """Wait until no more can be sent; how much it was."""
        async with asyncio.timeout(20):
            while True:
                before = self.sent
                await asyncio.sleep(QUIET_S)
                if before and self.sent == before:
                    return self.sent
                assert self.sent < 4 * MOST_BYTES, "it is read without a bound"


@asynccontextmanager
async def endless(**args: Any) -> AsyncIterator[tuple[Running, Endless]]:
    engine = Endless()
    async with listening(engine.member):
        others = [engine.member.upstream(kind=args.pop("kind", "openai"), health_period_s=60.0)]
        async with gateway(others=others, **args) as running:
            yield running, engine


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_an_engine_whose_client_does_not_read_is_not_read_either(kind: str) -> None:
    async with endless(kind=kind) as (running, engine):
        async with running.stream("hi", temperature=0) as stream:
            await stream.event()
            sent = await engine.stands_still()
            assert sent < MOST_BYTES
            for _ in range(sent // len(EVENT) + 10):
                await stream.event()
            assert engine.sent > sent, "it goes on when its client reads"
            stream.leave()
        async with asyncio.timeout(5):
            await engine.over.wait()
        await running.until_idle()


async def test_a_cacheable_answer_is_not_kept_whole_for_a_client_that_does_not_read(folder: Path) -> None:
    limits = {"max_stream_buffer_bytes": 1 << 20}
    async with local_cache(folder, race=False) as cache, AsyncExitStack() as stack:
        args = {"limits": limits, "handles": cache.handles, **cache.args}
        running, engine = await stack.enter_async_context(endless(**args))
        async with running.stream("hi") as stream:
            await stream.event()
            assert await engine.stands_still() < MOST_BYTES
        await running.until_idle()


async def test_a_client_that_does_not_read_is_bounded_by_its_deadline() -> None:
    async with endless() as (running, engine):
        async with running.stream("hi", {"x-request-timeout-ms": "1500"}) as stream:
            await stream.event()
            await engine.stands_still()
            async with asyncio.timeout(15):
                await engine.over.wait()
        await running.until_idle()


async def test_a_client_that_does_not_read_delays_no_other() -> None:
    async with endless() as (running, engine), running.stream("hi") as stuck:
        await stuck.event()
        await engine.stands_still()
        async with running.stream("hi too") as other, asyncio.timeout(10):
            for _ in range(200):
                await other.event()


async def test_a_body_that_is_sent_slowly_holds_no_place() -> None:
    async with endless() as (running, _):
        host, port = running.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), family=socket.AF_INET)
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        head += "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
        writer.write(head.encode() + b'{"model": "sim"')
        await writer.drain()
        async with meanwhile(reader.read()):
            assert await running.in_flight() == 0
            assert (await running.traffic())["requests"] == 0
            writer.close()


class Large:
    """An engine whose whole answers no socket takes at once."""

    def __init__(self) -> None:
        self.member = Member(self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        choice = {"index": 0, "message": {"role": "assistant", "content": "x" * MOST_BYTES}}
        return web.json_response({"object": "chat.completion", "choices": [choice]})


@asynccontextmanager
async def large(**limits: Any) -> AsyncIterator[tuple[Running, asyncio.StreamReader]]:
    """A client that has read no more than the head of its answer."""
    engine = Large()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(engine.member))
        others = [engine.member.upstream(kind="openai", health_period_s=60.0)]
        limits = {"max_answer_bytes": 2 * MOST_BYTES, **limits}
        running = await stack.enter_async_context(gateway(others=others, limits=limits))
        host, port = running.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), family=socket.AF_INET)
        stack.callback(writer.close)
        body = json.dumps(chat("hi", temperature=0)).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(30):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        yield running, reader


async def is_full(running: Running) -> bool:
    """Whether the one request that the gateway answers at once is that of another client."""
    async with running.http.get("/v1/me") as response:
        return response.status != 200


async def test_a_whole_answer_counts_until_its_client_has_read_it() -> None:
    async with large(max_concurrent_requests=1) as (running, reader), asyncio.timeout(30):
        assert await is_full(running)
        assert len(await reader.read()) > MOST_BYTES
        assert await eventually(lambda: _not(is_full(running)), within_s=5)


async def _not(answer: Coroutine[Any, Any, bool]) -> bool:
    return not await answer
