"""The HTTP client towards engines, against a server that is told when to read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from deployments.wire.upstream import AnswerBounds, UpstreamPool, UpstreamResponse
from serve_app.errors import UpstreamFailed
from serve_app.fleet import EngineReport, EngineState

LARGE = bytes(32 << 20)
"""More than the sockets' buffers hold."""

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Reads no request's body before ``read`` is set; then answers, or hangs up if ``leaves``."""

    def __init__(self) -> None:
        self.read = asyncio.Event()
        self.leaves = False
        self.bodies: list[int] = []
        self.done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.transport.abort()
            self.done.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await self.read.wait()
        if not self.leaves:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.bodies.append(len(await reader.readexactly(length)))
            writer.write(OK)
            await writer.drain()


@asynccontextmanager
async def started() -> AsyncIterator[tuple[Server, EngineReport]]:
    server = Server()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with await asyncio.start_server(server.serve, sock=sock):
            yield server, EngineReport("e0", "m", url, {}, EngineState.READY)
            server.leaves = True
            server.read.set()
            await server.done.wait()


@asynccontextmanager
async def asked(report: EngineReport, body: bytes) -> AsyncIterator[asyncio.Task[UpstreamResponse]]:
    pool = UpstreamPool(AnswerBounds(1 << 20, 1 << 20))
    task = asyncio.create_task(pool.open(report, "POST", "/v1/chat/completions", body, {}))
    try:
        yield task
    finally:
        task.cancel()
        await pool.close()


@pytest.mark.parametrize("body", [b"{}", LARGE])
async def test_a_body_arrives_whole_however_late_it_is_read(body: bytes) -> None:
    async with started() as (server, report), asked(report, body) as task:
        await asyncio.wait([task], timeout=0.05)  # as much as fits is on its way
        assert not task.done()
        server.read.set()
        response = await asyncio.wait_for(task, 20)
        assert (response.status, await response.read()) == (200, b"ok")
        response.close()
        assert server.bodies == [len(body)]


async def test_a_server_that_leaves_while_the_body_is_sent_is_a_failed_upstream() -> None:
    async with started() as (server, report), asked(report, LARGE) as task:
        server.leaves = True
        server.read.set()
        with pytest.raises(UpstreamFailed):
            await asyncio.wait_for(task, 20)


async def test_a_request_given_up_while_its_body_is_sent_leaves_nothing_behind() -> None:
    async with started() as (_, report), asked(report, LARGE) as task:
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert [each for each in others if "Server.serve" not in repr(each.get_coro())] == []
