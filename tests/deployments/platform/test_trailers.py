"""Trailers of a chunked request: no headers, and no connection that is kept and never read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.gateway import serving

from deployments.platform.trailers import mend_trailers

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
    mend_trailers()
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
