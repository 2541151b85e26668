"""Trailers of a chunked request, what is no HTTP, and clients that close their sending side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.gateway import FAST, SimSettings, chat, gateway, serving
from support.graph import CHAT

from deployments.platform.http_protocol import chunk_writer, mend_http

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b"2\r\n{}\r\n0\r\n"
NEXT = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the names of the headers that it reads once the body is there."""
    while (await receive()).get("more_body", False):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    headers = [(b"content-length", str(len(names)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": names})


async def hasty(scope: Any, receive: Any, send: Any) -> None:
    """Answers before the body has come."""
    await send({"type": "http.response.start", "status": 415, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def connected(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    mend_http()
    async with serving(app) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        yield reader, writer
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head.lower(), await reader.readexactly(length)


async def test_a_trailer_is_no_header_of_the_request() -> None:
    async with connected(echo) as (reader, writer):
        writer.write(HEAD + BODY + b"authorization: Bearer x\r\n\r\n")
        _, names = await answer(reader)
    assert names == b"host transfer-encoding"


@pytest.mark.parametrize("name", [b"connection", b"proxy-connection"])
async def test_a_connection_that_a_trailer_closes_is_not_offered_to_the_next_request(name: bytes) -> None:
    async with connected(echo) as (reader, writer):
        writer.write(HEAD + BODY + name + b": close\r\n\r\n")
        head, _ = await answer(reader)
        assert b"connection: close" in head
        assert await reader.read() == b""


async def test_one_that_is_closed_by_a_trailer_after_the_answer_ends() -> None:
    async with connected(hasty) as (reader, writer):
        writer.write(HEAD)
        head, _ = await answer(reader)
        assert b" 415 " in head
        writer.write(BODY + b"connection: close\r\n\r\n")
        assert await reader.read() == b""


async def test_a_connection_with_other_trailers_is_kept() -> None:
    async with connected(echo) as (reader, writer):
        writer.write(HEAD + BODY + b"x-checksum: 1\r\n\r\n")
        await answer(reader)
        writer.write(NEXT)
        assert (await answer(reader))[1] == b"host"


# ---- what is no HTTP ----

MALFORMED = [
    b"FOO / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nx-a: a\x01b\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"no http\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
]


@pytest.mark.parametrize("raw", MALFORMED)
async def test_what_is_no_http_gets_an_error_in_openais_shape(raw: bytes) -> None:
    async with connected(echo) as (reader, writer):
        writer.write(raw)
        head, body = await answer(reader)
        assert await reader.read() == b""
    assert head.startswith(b"http/1.1 400 ")
    assert b"content-type: application/json\r\n" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "malformed_http")


async def test_what_is_no_http_puts_nothing_into_an_answer_that_has_begun() -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with connected(endless) as (reader, writer):
        writer.write(NEXT)
        await reader.readuntil(b"begun\r\n")
        writer.write(b"no http\r\n\r\n")
        assert await reader.read() == b""


# ---- clients that close their sending side ----


def chat_request() -> bytes:
    body = json.dumps(chat("hello")).encode()
    head = (
        b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    return head % (CHAT.encode(), len(body)) + body


async def test_who_closes_its_sending_side_before_it_is_answered_hears_why_and_frees_the_engine() -> None:
    slow = SimSettings(itl_ms=20.0, tokens=4000)
    async with gateway(slow) as running, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
        writer.write(chat_request())
        writer.write_eof()
        head, body = await answer(reader)
        assert (head.split()[1], json.loads(body)["error"]["code"]) == (b"400", "half_closed")
        assert await reader.read() == b""
        writer.close()
        await running.until_idle()


async def test_who_closes_it_with_half_a_request_sent_gets_nothing() -> None:
    async with gateway(FAST) as running, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
        writer.write(chat_request()[:-1])
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


START = {"type": "http.response.start", "status": 200, "headers": []}


def part(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


@pytest.mark.parametrize("writes_now", [False, True])
async def test_a_chunk_that_is_written_at_once_is_the_same_chunk(writes_now: bool) -> None:
    """If this fails, uvicorn has moved: look at `RequestResponseCycle.send`."""

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        write = chunk_writer(send)
        assert write is not None
        for data in (b"data: a\n\n", b"x" * 300):
            if writes_now:
                assert write(data)
            else:
                await send(part(data, more=True))
        await send(part(b"end", more=False))
        assert not write(b"more"), "the answer has ended"

    async with connected(streams) as (reader, writer):
        writer.write(NEXT)
        await reader.readuntil(b"\r\n\r\n")
        received = await reader.readuntil(b"0\r\n\r\n")
    assert received == b"9\r\ndata: a\n\n\r\n12c\r\n%b\r\n3\r\nend\r\n0\r\n\r\n" % (b"x" * 300)


async def test_a_slow_client_is_waited_for() -> None:
    refused = asyncio.Event()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        write = chunk_writer(send)
        assert write is not None
        count = 1
        while write(b"x" * 65_536):
            count += 1
            await asyncio.sleep(0)
        refused.set()
        await send(part(b"x" * 65_536, more=True))
        await send(part(b"%d" % count, more=False))

    async with connected(streams) as (reader, writer):
        writer.write(NEXT)
        await reader.readuntil(b"\r\n\r\n")
        await refused.wait()
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += await reader.read(1 << 20)
    count = int(received.split(b"\r\n")[-4])
    assert received.count(b"x" * 65_536) == count


async def test_a_client_that_left_is_not_written_to() -> None:
    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        write = chunk_writer(send)
        assert write is not None
        while (await receive())["type"] != "http.disconnect":
            pass
        found.set_result(write(b"x"))

    async with connected(streams) as (reader, writer):
        writer.write(NEXT)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert not await found


async def test_what_is_no_open_stream_of_uvicorns_is_not_written_past() -> None:
    writers: list[Any] = []

    async def sized(scope: Any, receive: Any, send: Any) -> None:
        async def wrapped(message: Any) -> None:
            await send(message)

        await send({**START, "headers": [(b"content-length", b"2")]})
        writers.extend([chunk_writer(send), chunk_writer(wrapped)])
        await send(part(b"ok", more=False))

    async with connected(sized) as (reader, writer):
        writer.write(NEXT)
        await answer(reader)
    assert writers == [None, None]
