"""Bodies that are sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from deployments.wire.http1 import BrokenConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"
PIECE = 1 << 18
WAIT_S = 20.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Numbered:
    """A body of so many pieces, each of which is full of its number."""

    def __init__(self, pieces: int, *, fails_at: int | None = None) -> None:
        self.size = pieces * PIECE
        self.reads: list[int] = []
        self._fails_at = fails_at

    async def read(self, at: int) -> bytes:
        number = at // PIECE
        if number == self._fails_at:
            raise OSError("the disk failed")
        self.reads.append(number)
        await asyncio.sleep(0)
        return bytes([number]) * PIECE

    @property
    def whole(self) -> bytes:
        return b"".join(bytes([number]) * PIECE for number in range(self.size // PIECE))


class Server:
    """Serves each connection with the next of its scripts."""

    def __init__(self, *scripts: Serve) -> None:
        self._scripts = list(scripts)
        self.connections = 0
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._scripts.pop(0)(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self.bodies.append(await reader.readexactly(length))
            writer.write(OK)


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Callable[[Numbered], Awaitable[tuple[int, bytes]]]]:
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 16) as listening:
        origin = Origin.of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        pool = ConnectionPool(connect_timeout_s=2.0, idle_s=60.0, read_ahead=1 << 16)

        async def ask(body: Numbered) -> tuple[int, bytes]:
            request = request_bytes(origin, "POST", "/x", {}, b"", follow=body.size)
            async with asyncio.timeout(WAIT_S):
                connection, first = await pool.begin(origin, request, body)
            status = connection.status
            while await connection.read_some():
                pass
            pool.give_back(origin, connection)
            return status, first

        try:
            yield ask
        finally:
            pool.close()


async def test_a_body_arrives_whole_and_the_connection_is_kept() -> None:
    server = Server()
    server._scripts.append(server.answer_all)
    body = Numbered(40)
    async with asking(server) as ask:
        assert await ask(body) == (200, b"ok")
        assert await ask(body) == (200, b"ok")
    assert server.bodies == [body.whole, body.whole]
    assert server.connections == 1


async def test_no_more_is_read_than_the_socket_takes() -> None:
    """The server reads nothing until the client waits for it."""
    body = Numbered(200)
    is_full = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_full.wait()
        await server.answer_all(reader, writer)

    server = Server(late)
    async with asking(server) as ask:
        asked = asyncio.ensure_future(ask(body))
        before = 0
        while not before or before != len(body.reads):  # until it stands still
            before = len(body.reads)
            await asyncio.sleep(0.1)
        assert before < 200, "50 MiB are more than two sockets hold"
        is_full.set()
        assert await asked == (200, b"ok")
    assert server.bodies == [body.whole]


async def test_a_refusal_before_the_end_is_heard_and_its_connection_used_no_more() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSED)
        await ended.wait()

    ended = asyncio.Event()
    server = Server(refuse, refuse)
    async with asking(server) as ask:
        for count in (1, 2):
            body = Numbered(200)
            assert await ask(body) == (413, b"no")
            assert len(body.reads) < 200
            assert server.connections == count
        ended.set()


async def test_a_kept_connection_that_the_server_had_closed_gets_the_body_again_from_its_beginning() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length" in head
        await reader.readexactly(PIECE)
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")  # of the next request, which it does not answer
        writer.transport.abort()

    server = Server(once)
    server._scripts.append(server.answer_all)
    async with asking(server) as ask:
        assert await ask(Numbered(1)) == (200, b"ok")
        body = Numbered(3)
        assert await ask(body) == (200, b"ok")
    assert server.bodies == [body.whole]
    assert body.reads[-3:] == [0, 1, 2]
    assert server.connections == 2


async def test_a_server_that_goes_away_in_the_middle_is_told() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(PIECE)
        writer.transport.abort()

    async with asking(Server(leave)) as ask:
        with pytest.raises(BrokenConnection):
            await ask(Numbered(200))


async def test_a_body_that_cannot_be_read_ends_its_connection() -> None:
    server = Server()
    server._scripts.append(server.answer_all)
    server._scripts.append(server.answer_all)
    async with asking(server) as ask:
        with pytest.raises(OSError, match="the disk failed"):
            await ask(Numbered(3, fails_at=1))
        body = Numbered(1)
        assert await ask(body) == (200, b"ok")
        assert server.bodies == [body.whole]
        assert server.connections == 2
