"""HTTP/1.1 over one socket, as far as an engine's clients need it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

from sim_engine.responses import error_body
from sim_engine.scheduler import Scheduled, Scheduler

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: sim\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. Empty for no data, because an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class App(Protocol):
    """What a connection needs of the engine behind it."""

    scheduler: Scheduler
    connections: set[Connection]
    ending: bool

    def handle(self, client: Connection, route: str, headers: dict[str, str], body: bytes) -> None:
        """Answer one request, now or later, through ``client``. ``route`` is method and path."""


class Connection(asyncio.Protocol):
    """One client: keep-alive, one request at a time, bodies with a ``content-length``. It is large because
    asyncio calls methods of one object, and all of them change the same request."""

    def __init__(self, engine: App) -> None:
        self.answer: Scheduled | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._buffer = b""
        self._busy = False
        self._last = False
        self._feed: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self.write = self._transport.write
        self._engine.connections.add(self)
        if self._engine.ending:  # accepted while the listener closed
            self.reset()

    def data_received(self, data: bytes) -> None:
        if self._feed is not None:
            self._feed(data)
            return
        self._buffer += data
        self._take_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.connections.discard(self)
        if self.answer is not None:
            self._engine.scheduler.abort(self.answer)
            self.answer = None
        self.closed.set_result(None)

    def respond(self, status: int, body: bytes) -> None:
        retry = "retry-after: 1\r\n" if status in (429, 503) else ""
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: sim\r\n{retry}"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)
        self._done()

    def switch(self, feed: Callable[[bytes], None]) -> None:
        """From now on this is no HTTP: ``feed`` gets all bytes."""
        self._feed = feed

    def start_stream(self) -> None:
        self.write(STREAM_HEAD)

    def end_stream(self, events: bytes) -> None:
        self.write(http_chunk(events) + LAST_CHUNK)
        self._done()

    def close(self) -> None:
        self._forget_answer()
        self._transport.close()

    def reset(self) -> None:
        """Close with RST, so that the client sees a broken connection and not the end of an answer."""
        self._forget_answer()
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self._transport.abort()

    def _forget_answer(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            self._engine.scheduler.release(answer)

    def _done(self) -> None:
        self.answer = None
        self._busy = False
        if self._last:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._take_requests)

    def _take_requests(self) -> None:
        if self._busy or self._transport.is_closing():
            return
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        try:
            route, headers = _parse_head(head.decode("latin-1"))
            length = int(headers.get("content-length", 0))
        except ValueError:
            self._last = True
            self.respond(400, error_body(400, "This is not an HTTP request with a length."))
            return
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._busy = True
        self._last = headers.get("connection", "").lower() == "close"
        self._engine.handle(self, route, headers, rest[:length])


def _parse_head(head: str) -> tuple[str, dict[str, str]]:
    """Method and path (no query), and the headers by lower-case name."""
    request_line, *lines = head.split("\r\n")
    method, target, _ = request_line.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "transfer-encoding" in headers:
        raise ValueError("chunked request bodies are not read")
    return f"{method} {target.partition('?')[0]}", headers


class Listener:
    """The listening socket. After it has closed it can open again on the same port."""

    def __init__(self, make_connection: Callable[[], Connection]) -> None:
        self._make_connection = make_connection
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)

    @property
    def is_open(self) -> bool:
        return self._server is not None

    @property
    def url(self) -> str:
        host, port = self._address
        return f"http://{host}:{port}"

    async def open(self, host: str | None = None, port: int = 0) -> None:
        """Listen; without a host, on the address of the last time."""
        if host is not None:
            self._address = (host, port)
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_connection, host, port, backlog=1024)
        self._address = (host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        await asyncio.sleep(0)  # a server that closes under a connection being accepted leaks it (3.11)
        server.close()
