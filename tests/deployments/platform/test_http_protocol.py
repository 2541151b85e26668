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

from deployments.platform.http_protocol import mend_http

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
