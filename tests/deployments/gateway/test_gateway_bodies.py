"""Bodies that arrive slowly, or not at all: whose requests they hinder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from support.gateway import FAST, Running, chat, gateway
from support.graph import CHAT, eventually

from serve_app.request.body_pace import GRACE_S, BodyPace

KILOBYTE = 1000


class Half:
    """A request whose headers are there, and its body only so far as it is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, running: Running, length: int, tenant: str | None = None, extra: str = "") -> Half:
        address = urlsplit(running.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        key = "" if tenant is None else f"authorization: {running.headers(tenant)['authorization']}\r\n"
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{key}content-type: application/json\r\n"
        writer.write(f"{head}{extra}content-length: {length}\r\n\r\n".encode())
        return cls(reader, writer)

    def send(self, part: bytes) -> None:
        self._writer.write(part)

    async def error(self) -> tuple[int, dict[str, Any]]:
        """The status and the error that it was answered with."""
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            body = json.loads(await self._reader.readexactly(length))
        return int(lines[0].split()[1]), body["error"]

    async def status(self) -> int:
        async with asyncio.timeout(10):
            return int((await self._reader.readline()).split()[1])

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def half_sent(running: Running, count: int, tenant: str | None = None) -> AsyncIterator[list[Half]]:
    """Requests that wait for their bodies."""
    async with AsyncExitStack() as stack:
        halves = []
        for _ in range(count):
            half = await Half.begin(running, 100, tenant)
            stack.callback(half.close)
            halves.append(half)
        yield halves


async def test_slow_bodies_take_no_place_from_anybody() -> None:
    async with gateway(FAST, limits={"max_concurrent_requests": 2}) as running, half_sent(running, 20):
        async with running.http.get("/v1/models") as response:
            assert response.status == 200
        assert (await running.post("hello")).text


async def test_a_request_takes_its_place_when_its_body_is_there() -> None:
    body = json.dumps(chat("late", max_tokens=5)).encode()
    async with gateway(FAST, limits={"max_concurrent_requests": 1}) as running:
        half = await Half.begin(running, len(body))
        async with running.stream("in the only place", max_tokens=4000) as stream:
            await stream.event()
            half.send(body)
            status, error = await half.error()
            assert (status, error["code"]) == (429, "over_capacity")
        half.close()

        async def free() -> bool:
            return (await running.post("hello")).status == 200

        assert await eventually(free, within_s=5)


async def test_who_finds_no_place_hears_so_before_sending_a_body() -> None:
    limits = {"max_concurrent_requests": 1}
    async with gateway(FAST, limits=limits) as running, running.stream("first", max_tokens=4000) as stream:
        await stream.event()
        async with half_sent(running, 1) as (half,):
            assert await half.status() == 429


async def test_a_body_that_does_not_come_is_given_up() -> None:
    limits = {"body_timeout_s": 0.2}
    async with gateway(FAST, limits=limits) as running, half_sent(running, 1) as (half,):
        half.send(b"{")
        status, error = await half.error()
        assert (status, error["code"], error["type"]) == (408, "body_timeout", "timeout_error")
        assert "1 bytes" in error["message"]


async def test_a_body_below_the_least_rate_is_given_up_and_one_above_it_may_still_come() -> None:
    limits = {"body_timeout_s": 600.0, "min_body_bytes_per_s": 100.0}
    body = json.dumps(chat("slowly", max_tokens=5) | {"user": "u" * 3 * KILOBYTE}).encode()
    async with gateway(FAST, limits=limits) as running, half_sent(running, 1) as (slow,):
        enough = await Half.begin(running, len(body))
        slow.send(b"{")
        enough.send(body[: 2 * KILOBYTE])  # what 20 s beyond the grace ask for
        status, error = await slow.error()
        assert (status, error["code"]) == (408, "body_timeout")
        enough.send(body[2 * KILOBYTE :])
        assert await enough.status() == 200
        enough.close()


async def test_one_tenants_bodies_are_bounded_and_another_tenants_are_not_concerned() -> None:
    limits = {"max_bodies_per_tenant": 3}
    async with gateway(FAST, tenants=("a", "b"), limits=limits) as running:
        async with half_sent(running, 3, "a"), half_sent(running, 1, "a") as (one_more,):
            status, error = await one_more.error()
            assert (status, error["code"]) == (429, "over_capacity")
            assert "limits.max_bodies_per_tenant" in error["message"]
            assert (await running.post("hello", headers=running.headers("b"))).text

        async def forgotten() -> bool:
            return (await running.post("hello", headers=running.headers("a"))).status == 200

        assert await eventually(forgotten, within_s=5)


async def test_a_body_beyond_its_limit_is_refused_although_it_was_sent_whole() -> None:
    async with gateway(FAST, limits={"max_conversation_bytes": 1024}) as running:
        answered = await running.post("x" * 2000)
        assert (answered.status, answered.error["code"]) == (413, "body_too_large")


async def test_a_body_that_is_announced_beyond_its_limit_is_refused_at_its_headers() -> None:
    async with gateway(FAST, limits={"max_conversation_bytes": 1024}) as running:
        half = await Half.begin(running, 1025)
        status, error = await half.error()
        assert (status, error["code"]) == (413, "body_too_large")
        assert "limits.max_conversation_bytes" in error["message"]
        half.close()


async def test_who_asks_before_sending_too_long_a_body_is_not_told_to_send_it() -> None:
    async with gateway(FAST, limits={"max_conversation_bytes": 1024}) as running:
        half = await Half.begin(running, 1025, extra="expect: 100-continue\r\n")
        assert await half.status() == 413
        half.close()


async def test_who_leaves_inside_a_body_leaves_nothing_behind() -> None:
    limits = {"max_bodies_per_tenant": 1}
    async with gateway(FAST, limits=limits) as running:
        async with half_sent(running, 1):
            pass

        async def forgotten() -> bool:
            return (await running.post("hello")).status == 200

        assert await eventually(forgotten, within_s=5)


def test_a_body_may_stand_still_for_a_moment_and_has_to_keep_its_rate_then() -> None:
    pace = BodyPace(timeout_s=60.0, min_bytes_per_s=KILOBYTE)
    assert pace.due_s(0) == GRACE_S
    assert pace.due_s(10 * KILOBYTE) == GRACE_S + 10
    assert pace.due_s(10_000 * KILOBYTE) == 60.0
