"""HTTP/1.1 connections, against a server that sends the bytes it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from deployments.launcher.ports import free_port
from deployments.wire.http1 import BrokenConnection, Connection, NoConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
READ_AHEAD = 1 << 16
WAIT_S = 10.0


class Server:
    """Answers each request with the next of ``answers``, in pieces of ``piece`` bytes; an answer that ends
    with ``HANG_UP`` ends the connection."""

    HANG_UP = b"<end>"

    def __init__(self, answers: list[bytes], piece: int) -> None:
        self.answers = answers
        self.piece = piece
        self.connections = 0
        self.requests: list[bytes] = []
        self.answered = asyncio.Event()
        self.ended = asyncio.Event()
        self.url = ""
        self.written = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                await self._write(writer, answer.removesuffix(self.HANG_UP))
                self.answered.set()
                if answer.endswith(self.HANG_UP):
                    return
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()
            self.ended.set()

    async def _write(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        for start in range(0, len(answer), self.piece):
            writer.write(answer[start : start + self.piece])
            await writer.drain()
            self.written += self.piece
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(
    *answers: bytes, piece: int = 1 << 20, idle_s: float = 60.0
) -> AsyncIterator[tuple[Server, Client]]:
    server = Server(list(answers), piece)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        pool = ConnectionPool(connect_timeout_s=2.0, idle_s=idle_s, read_ahead=READ_AHEAD)
        try:
            yield server, Client(pool, Origin.of(server.url))
        finally:
            pool.close()


class Client:
    def __init__(self, pool: ConnectionPool, origin: Origin) -> None:
        self.pool = pool
        self.origin = origin

    async def begin(self, body: bytes = b"") -> Connection:
        connection = await self.pool.take(self.origin)
        connection.send(request_bytes(self.origin, "GET", "/x", {}, body))
        return connection

    async def ask(self) -> tuple[int, bytes]:
        """Status and body of a whole answer; the connection goes back."""
        request = request_bytes(self.origin, "GET", "/x", {}, b"")
        async with asyncio.timeout(WAIT_S):
            return await self.pool.ask(self.origin, request)


def chunked(*parts: bytes) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Kind: One\r\n\r\n" + chunks


@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 20])
async def test_an_answer_is_read_however_it_is_cut(piece: int) -> None:
    async with serving(chunked(b"data: a\n\n", b"data: b\n\n"), piece=piece) as (_, client):
        assert await client.ask() == (200, b"data: a\n\ndata: b\n\n")


async def test_status_and_headers_are_known_with_the_first_bytes() -> None:
    async with serving(chunked(b"one")) as (_, client):
        connection = await client.begin()
        assert await connection.read_some() == b"one"
        assert (connection.status, connection.headers["x-kind"]) == (200, "One")


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with serving(OK, chunked(b"two"), OK) as (server, client):
        assert [await client.ask() for _ in range(3)] == [(200, b"ok"), (200, b"two"), (200, b"ok")]
        assert server.connections == 1


async def test_a_connection_is_kept_through_many_answers_without_a_body() -> None:
    """As vLLM answers a health check: their heads are read, too, and must not count as unread bytes."""
    empty = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-long: %b\r\n\r\n" % (b"x" * 1000)
    number = 2 * READ_AHEAD // len(empty) + 2
    async with serving(*[empty] * number, OK) as (server, client):
        assert {await client.ask() for _ in range(number)} == {(200, b"")}
        assert await client.ask() == (200, b"ok")
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        b"HTTP/1.1 200 OK\r\n\r\nok" + Server.HANG_UP,
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + Server.HANG_UP,
    ],
    ids=["asked to close", "ends with the connection", "HTTP/1.0", "hangs up after it"],
)
async def test_what_cannot_be_kept_is_not_used_again(answer: bytes) -> None:
    async with serving(answer, OK) as (server, client):
        assert await client.ask() == (200, b"ok")
        async with asyncio.timeout(WAIT_S):
            await server.ended.wait()
        await asyncio.sleep(0.01)  # the end arrives
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    async with serving(interim + OK, piece=5) as (_, client):
        connection = await client.begin()
        assert await connection.read_some() in (b"o", b"ok")
        assert (connection.status, "link" in connection.headers) == (200, False)


def test_serves_own_event_loop_will_do() -> None:
    """Replicas run on uvloop, whose transports are no asyncio ones by type."""

    async def twice() -> None:
        async with serving(chunked(b"one"), OK) as (server, client):
            assert [await client.ask() for _ in range(2)] == [(200, b"one"), (200, b"ok")]
            assert server.connections == 1

    uvloop.run(twice())


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_is_complete(status: int) -> None:
    async with serving(b"HTTP/1.1 %d X\r\n\r\n" % status) as (_, client):
        assert await client.ask() == (status, b"")


async def test_what_came_before_a_break_is_read_before_it_is_told() -> None:
    cut = chunked(b"one", b"two").removesuffix(b"0\r\n\r\n") + Server.HANG_UP
    async with serving(cut) as (server, client):
        connection = await client.begin()
        async with asyncio.timeout(WAIT_S):
            await server.ended.wait()
        assert await connection.read_some() == b"onetwo"
        with pytest.raises(BrokenConnection, match="closed"):
            await connection.read_some()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x-pad: %b\r\n" % (b"p" * 1000) * 100, "headers without an end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n" + Server.HANG_UP, "closed"),
        (b"" + Server.HANG_UP, "closed"),
    ],
    ids=["another protocol", "no length", "endless headers", "less than was said", "nothing"],
)
async def test_what_is_no_answer_is_a_broken_connection(answer: bytes, reason: str) -> None:
    async with serving(answer) as (_, client):
        connection = await client.begin()
        with pytest.raises(BrokenConnection, match=reason):
            async with asyncio.timeout(WAIT_S):
                await connection.read_some()
        assert not connection.can_be_kept


async def test_more_than_was_asked_for_ends_the_connection() -> None:
    async with serving(OK + OK, OK) as (server, client):
        connection = await client.begin()
        assert await connection.read_some() == b"ok"
        client.pool.give_back(client.origin, connection)
        await asyncio.sleep(0.01)
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_a_slow_reader_stops_the_server_and_loses_nothing() -> None:
    size = 32 << 20
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)) as (
        server,
        client,
    ):
        connection = await client.begin()
        held = len(await connection.read_some())
        written = -1
        while written != server.written:  # until it stands still
            written = server.written
            await asyncio.sleep(0.05)
        assert written < size
        async with asyncio.timeout(WAIT_S):
            while part := await connection.read_some():
                assert len(part) < 1 << 20
                held += len(part)
        assert held == size


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    async with serving(OK) as (_, client):
        connection = await client.begin()
        reading = asyncio.create_task(connection.read_some())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        async with asyncio.timeout(WAIT_S):
            assert await connection.read_some() == b"ok"


async def test_whoever_stops_waiting_for_a_whole_answer_closes_the_connection() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nnot", OK) as (server, client):
        asking = asyncio.create_task(client.ask())
        async with asyncio.timeout(WAIT_S):
            await server.answered.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_an_aborted_connection_tells_its_reader() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n") as (_, client):
        connection = await client.begin()
        reading = asyncio.create_task(connection.read_some())
        await asyncio.sleep(0.01)
        connection.abort()
        with pytest.raises(BrokenConnection):
            await asyncio.wait_for(reading, WAIT_S)


async def test_connections_that_nobody_used_for_long_are_closed() -> None:
    async with serving(OK, OK, idle_s=0.05) as (server, client):
        assert await client.ask() == (200, b"ok")
        async with asyncio.timeout(WAIT_S):
            await server.ended.wait()
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_a_request_over_a_connection_that_has_ended_fails() -> None:
    async with serving(OK) as (_, client):
        connection = await client.begin()
        assert await connection.read_some() == b"ok"
        connection.abort()
        await asyncio.sleep(0.01)  # the end arrives
        connection.send(request_bytes(client.origin, "GET", "/", {}, b""))
        with pytest.raises(BrokenConnection, match="closed"):
            await connection.read_some()


async def test_a_server_that_has_failed_is_not_asked_again_over_the_same_connection() -> None:
    """It may close after its answer without saying so."""
    async with serving(OK.replace(b"200 OK", b"500 X"), OK) as (server, client):
        assert await client.ask() == (500, b"ok")
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_a_kept_connection_that_the_server_had_closed_is_replaced_once() -> None:
    async with serving(OK, Server.HANG_UP, OK) as (server, client):
        assert [await client.ask() for _ in range(2)] == [(200, b"ok")] * 2
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_a_new_connection_is_not_replaced() -> None:
    async with serving(OK, Server.HANG_UP, Server.HANG_UP, OK) as (server, client):
        assert await client.ask() == (200, b"ok")
        with pytest.raises(BrokenConnection, match="closed"):
            await client.ask()
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "begun", [b"HTTP/1.1 200 OK\r\n", OK[:-1]], ids=["inside the head", "inside the body"]
)
async def test_a_kept_connection_that_ends_inside_an_answer_is_not_replaced(begun: bytes) -> None:
    async with serving(OK, begun + Server.HANG_UP, OK) as (server, client):
        assert await client.ask() == (200, b"ok")
        with pytest.raises(BrokenConnection, match="closed"):
            await client.ask()
        assert len(server.requests) == 2


async def test_a_request_that_asks_for_a_new_connection_is_given_no_kept_one() -> None:
    async with serving(OK, OK) as (server, client):
        assert await client.ask() == (200, b"ok")
        request = request_bytes(client.origin, "GET", "/x", {}, b"")
        connection, first = await client.pool.begin(client.origin, request, fresh=True)
        assert (first, server.connections) == (b"ok", 2)
        connection.abort()


async def test_each_origin_says_how_long_its_connections_are_kept() -> None:
    async with serving(OK, OK) as (server, client):
        connection = await client.begin()
        assert await connection.read_some() == b"ok"
        client.pool.give_back(client.origin, connection, idle_s=0.05)
        async with asyncio.timeout(WAIT_S):
            await server.ended.wait()
        assert await client.ask() == (200, b"ok")
        assert server.connections == 2


async def test_where_nobody_listens_there_is_no_connection() -> None:
    pool = ConnectionPool(connect_timeout_s=2.0, idle_s=60.0, read_ahead=READ_AHEAD)
    with pytest.raises(NoConnection, match="ConnectionRefusedError"):
        await pool.take(Origin.of(f"http://127.0.0.1:{free_port()}"))


async def test_a_closed_pool_closes_what_is_in_use() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n") as (_, client):
        connection = await client.begin()
        client.pool.close()
        with pytest.raises(BrokenConnection):
            await asyncio.wait_for(connection.read_some(), WAIT_S)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://h:8000", Origin("h", 8000, False, "h:8000", "")),
        ("https://api.example.com/base/", Origin("api.example.com", 443, True, "api.example.com", "/base")),
        ("http://[::1]:9/v1", Origin("::1", 9, False, "[::1]:9", "/v1")),
        ("http://user:secret@h", Origin("h", 80, False, "h", "")),
    ],
)
def test_an_origin_is_read_off_a_url(url: str, origin: Origin) -> None:
    assert Origin.of(url) == origin


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://", ""])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(ValueError, match="no http or https URL"):
        Origin.of(url)


def test_a_request_says_how_long_it_is_and_where_it_goes() -> None:
    origin = Origin.of("http://h:1/base")
    request = request_bytes(origin, "POST", "/v1/x?a=%20", {"x-id": "é"}, b"{}")
    head, _, body = request.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    assert (first, body) == ("POST /base/v1/x?a=%20 HTTP/1.1", b"{}")
    assert {"host: h:1", "x-id: é", "content-length: 2"} <= set(fields)
    assert b"content-length: 0" in request_bytes(origin, "POST", "/", {}, b"")
    assert b"content-length" not in request_bytes(origin, "GET", "/", {}, b"")


@pytest.mark.parametrize("bad", ["a\r\nx-evil: 1", "a\nb", "a\rb"])
def test_a_line_break_in_a_header_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        request_bytes(Origin.of("http://h"), "GET", "/", {"x-id": bad}, b"")


async def test_who_listens_is_called_in_the_turn_in_which_bytes_arrive() -> None:
    async with serving(chunked(b"one", b"two"), piece=1) as (_, client):
        connection = await client.begin()
        got = [await connection.read_some()]
        ended = asyncio.Event()

        def arrived() -> None:
            data = connection.read_now()
            if data:
                got.append(data)
            if data is None or connection.is_read:
                connection.unlisten()
                ended.set()

        if connection.listen(arrived):
            await asyncio.wait_for(ended.wait(), WAIT_S)
        assert b"".join(got) == b"onetwo"
        assert connection.read_now() is None, "only `read_some` tells of the end"
        assert await connection.read_some() == b""


async def test_who_listens_is_called_when_the_connection_breaks() -> None:
    async with serving(chunked(b"one")[:-5] + Server.HANG_UP) as (_, client):
        connection = await client.begin()
        assert await connection.read_some() == b"one"
        called = asyncio.Event()
        if connection.listen(called.set):
            await asyncio.wait_for(called.wait(), WAIT_S)
        assert connection.read_now() is None
        with pytest.raises(BrokenConnection):
            await connection.read_some()


async def test_who_would_listen_reads_first_what_is_there() -> None:
    async with serving(OK) as (_, client):
        connection = await client.begin()
        assert await connection.read_some() == b"ok"
        assert not connection.listen(lambda: None), "the answer is complete"
