"""HTTP/1.1 from the client's side: connections that are kept, and the answers that come over them.

A gateway asks an engine once for every request, and in a burst each request waits until those before it were
sent: the CPU time of sending is what a burst adds to its first tokens. A general client spends most of it on
what engines never need (docs/benchmarks.md has the figures). Here nothing is followed, unpacked, proxied or
remembered; answers are parsed by llhttp (httptools), which uvicorn reads requests with.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from serve_app.wire.handshake import REPLY_BYTES, Handshake, NotProven
from serve_app.wire.private_address import PrivateAddress

MAX_HEAD_BYTES = 1 << 16
"""Of an answer's status line and headers."""

MAX_ASKED_BYTES = 1 << 26
"""Of a whole answer; those that are asked for whole are look-ups and the like, thousands of times smaller."""

STALE_S = 0.25
"""How soon after sending a kept connection must end, without a byte, to count as one that the other side had
closed while it was idle: a round trip around the world. Whoever closes later has worked on the request."""

FIRST_SERVER_ERROR = 500
"""From this status on a server may close without saying so: uvicorn does after an application's exception."""

PORTS = {"http": 80, "https": 443}
ALWAYS_SENT = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "promptly"}


class NoConnection(Exception):
    """None came about, so nothing was sent."""


class ConnectTimeout(NoConnection):
    """Nobody took it, nobody refused it."""


class BrokenConnection(Exception):
    """It ended before the answer did, or what came was no HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connection leads. ``path`` stands before the target of every request. Behind a ``private``
    address both ends prove that they know its secret before the first request."""

    host: str
    port: int
    is_tls: bool
    authority: str
    path: str
    private: PrivateAddress | None = None

    @classmethod
    def behind(cls, address: PrivateAddress) -> Origin:
        """A private listener."""
        return cls.of(address.url, address)

    @classmethod
    def of(cls, url: str, private: PrivateAddress | None = None) -> Origin:
        """Raises: ValueError: no http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"no http or https URL: {url!r}")
        port = parts.port or PORTS[parts.scheme]
        authority = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        return cls(parts.hostname, port, parts.scheme == "https", authority, path, private)


def request_bytes(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole request. ``target``: path and query, encoded.

    Raises:
        ValueError: a line break inside a header or the target.
    """
    length = {"content-length": str(len(body))} if body or method != "GET" else {}
    fields = {"host": origin.authority, **ALWAYS_SENT, **headers, **length}
    lines = [
        f"{method} {origin.path}{target} HTTP/1.1",
        *(f"{key}: {value}" for key, value in fields.items()),
    ]
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1:
        raise ValueError("a line break inside a request's header")
    return head.encode() + b"\r\n\r\n" + body


class Connection(asyncio.Protocol):
    """One request at a time, whose answer one reader reads. What is not read stops the socket at twice
    ``read_ahead`` bytes, so that a slow reader costs no memory."""

    def __init__(self, read_ahead: int, on_end: Callable[[Connection], None]) -> None:
        self._read_ahead = read_ahead
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._is_paused = False
        self._is_complete = False
        self._is_kept = False
        self._is_silent = True
        self._error: BrokenConnection | None = None
        self._was_kept = False
        self._sent_at = 0.0
        self.idle_until = 0.0
        """No request is to be sent from then on (loop time), once it was kept."""
        self._reply: bytes | None = None
        self._proof = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case, values Latin-1."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_read(self) -> bool:
        """The answer is complete, and nothing of it is left to read."""
        return self._is_complete and not self._parts

    @property
    def can_be_kept(self) -> bool:
        """For another request."""
        return self._is_kept and self.is_read and self.is_open and self.status < FIRST_SERVER_ERROR

    @property
    def was_stale(self) -> bool:
        """It had been kept, and ended before the first byte of an answer, at once: the other side had closed
        it, and has not read the request."""
        is_soon = self._loop.time() - self._sent_at < STALE_S
        return self._was_kept and self._is_silent and is_soon

    def keep(self, until: float) -> None:
        """Idle from now on, for another request before ``until`` (loop time)."""
        self._was_kept, self.idle_until = True, until

    def is_young(self, now: float) -> bool:
        """It may be sent another request."""
        return self.is_open and now < self.idle_until

    async def prove(self, handshake: Handshake) -> None:
        """Before the first request, which will begin with this end's proof.

        Raises:
            NotProven: the other end does not know the secret; it is told nothing, the connection is closed.
        """
        assert self._transport is not None, "the connection was made"
        self._reply = b""
        self._transport.write(handshake.hello())
        try:
            while len(self._reply) < REPLY_BYTES:
                if self._error is not None:
                    raise NotProven("it hung up on a greeting")
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            self._proof = handshake.answer(self._reply)
        except BaseException:
            self.abort()
            raise
        self._reply = None

    def send(self, request: bytes) -> None:
        """Begin a request. What the socket does not take at once is kept until it does."""
        self.status, self._head_size = 0, 0
        self._is_complete = self._is_kept = False
        self._is_silent, self._sent_at = True, self._loop.time()
        self.headers = {}
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is None:  # it ended meanwhile
            self._error = BrokenConnection("closed")
        else:
            proof, self._proof = self._proof, b""
            self._transport.write(proof + request if proof else request)

    async def read_some(self) -> bytes:
        """All bytes of the body that are here, at least one; ``b""`` at its end. ``status`` and ``headers``
        are known when it returns. May be cancelled without losing anything.

        Raises:
            BrokenConnection: there will be no more.
        """
        while not self._parts:
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close it at once; whoever reads is told so."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by type

    def data_received(self, data: bytes) -> None:
        if self._reply is not None and len(self._reply) + len(data) <= REPLY_BYTES:
            self._reply += data
            self._wake()
            return
        self._is_silent = False
        if self._parser is None or self._is_complete:  # nobody asked for it
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"no HTTP: {type(error).__name__}")
        if not self.status:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._break("headers without an end")
        if self._size > 2 * self._read_ahead and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = self._parser = None  # the parser holds this object
        if not self._is_complete:
            if error is None and self._error is None and self._ends_with_the_connection():
                self._is_complete = True
            elif self._error is None:
                self._error = BrokenConnection("closed" if error is None else type(error).__name__)
        self._wake()
        self._on_end(self)

    # ---- httptools' callbacks

    def on_message_begin(self) -> None:
        if self._is_complete:  # raised in a callback, it stops the parser
            raise BrokenConnection("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim answer: the real one follows
            self.status, self.headers = 0, {}
        else:
            self._is_complete = True
            self._is_kept = bool(self._parser.should_keep_alive())  # only here does the parser know

    def _ends_with_the_connection(self) -> bool:
        """An answer that does not say how long it is."""
        return bool(self.status) and not {"content-length", "transfer-encoding"} & self.headers.keys()

    def _break(self, reason: str) -> None:
        self._error = BrokenConnection(reason)
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ConnectionPool:
    """Connections by origin: the one that was used last is used first, so that those too many grow old.

    ``idle_s``: how long one is kept unless its user says otherwise. It must be less than the other side keeps
    it: a request that meets the other side's closing is lost."""

    def __init__(self, *, connect_timeout_s: float, idle_s: float, read_ahead: int) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._read_ahead = read_ahead
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._tls: ssl.SSLContext | None = None

    async def take(self, origin: Origin) -> Connection:
        """An idle connection, or a new one. Give it back, or abort it.

        Raises:
            NoConnection: none came about in time.
        """
        idle, now = self._idle.get(origin), self._loop.time()
        while idle:
            connection = idle.pop()
            if connection.is_young(now):
                return connection
            connection.abort()
        return await self._connect(origin)

    async def begin(self, origin: Origin, request: bytes, *, fresh: bool = False) -> tuple[Connection, bytes]:
        """Send a request; the connection, and the first bytes of the answer's body (``b""``: it has none).
        A kept connection that proves to have been closed by the other side is replaced by a new one, once;
        ``fresh`` begins with a new one. Give the connection back, or abort it.

        Raises:
            NoConnection: none came about in time; nothing was sent.
            BrokenConnection: it ended before the body began.
        """
        connection = await (self._connect(origin) if fresh else self.take(origin))
        try:
            return connection, await _first_bytes(connection, request)
        except BrokenConnection:
            if not connection.was_stale:
                raise
        try:
            connection = await self._connect(origin)
        except NoConnection as error:  # the request was sent once: whoever asks must not take it for unsent
            raise BrokenConnection("closed, and nobody listens there any more") from error
        return connection, await _first_bytes(connection, request)

    async def ask(self, origin: Origin, request: bytes) -> tuple[int, bytes]:
        """Status and whole body of the answer to one request. A wait that is cancelled closes its connection.

        Raises:
            NoConnection: none came about in time.
            BrokenConnection: it ended before the answer did.
        """
        connection, part = await self.begin(origin, request)
        try:
            parts, size = [], 0
            while part:
                parts.append(part)
                size += len(part)
                if size > MAX_ASKED_BYTES:
                    raise BrokenConnection("an answer without an end")
                part = await connection.read_some()
        except BaseException:
            connection.abort()
            raise
        status = connection.status  # the connection is another request's as soon as it is given back
        self.give_back(origin, connection)
        return status, b"".join(parts)

    def give_back(self, origin: Origin, connection: Connection, idle_s: float | None = None) -> None:
        """After its answer was read; one that cannot be kept is closed. ``idle_s``: of this origin."""
        if not connection.can_be_kept or connection not in self._open:
            connection.abort()
            return
        until = self._loop.time() + (self._idle_s if idle_s is None else idle_s)
        connection.keep(until)
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None or until < self._sweep_at:
            self._sweep_from(until)

    def close(self) -> None:
        """All of them, those in use as well."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()

    async def _connect(self, origin: Origin) -> Connection:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                if origin.private is None:
                    connection = await self._reach(origin)
                else:
                    connection = await self._reach_private(origin, origin.private)
        except NotProven as error:
            raise NoConnection(str(error)) from error
        except TimeoutError as error:
            raise ConnectTimeout(type(error).__name__) from error
        except OSError as error:
            raise NoConnection(type(error).__name__) from error
        self._open.add(connection)
        return connection

    async def _reach(self, origin: Origin) -> Connection:
        _, connection = await self._loop.create_connection(
            self._new, origin.host, origin.port, ssl=self._context() if origin.is_tls else None
        )
        return connection

    async def _reach_private(self, origin: Origin, address: PrivateAddress) -> Connection:
        """By the unix socket, which is there on the listener's own node only; else as everybody.

        Raises:
            NotProven: somebody else listens there.
        """
        connection = None
        if address.socket:
            with contextlib.suppress(OSError):
                _, connection = await self._loop.create_unix_connection(self._new, address.socket)
        if connection is None:
            connection = await self._reach(origin)
        await connection.prove(Handshake(address.secret, address.url))
        return connection

    def _new(self) -> Connection:
        return Connection(self._read_ahead, self._open.discard)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _sweep_from(self, at: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep, self._sweep_at = self._loop.call_at(at, self._close_old), at

    def _close_old(self) -> None:
        now = self._loop.time()
        self._sweep = None
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if not connection.is_young(now):
                    connection.abort()
            young = [connection for connection in idle if connection.is_young(now)]
            if young:
                self._idle[origin] = young
            else:
                del self._idle[origin]
        ends = [connection.idle_until for idle in self._idle.values() for connection in idle]
        if ends:
            self._sweep_from(min(ends))


async def _first_bytes(connection: Connection, request: bytes) -> bytes:
    """Of the answer's body. Whatever goes wrong closes the connection."""
    try:
        connection.send(request)
        return await connection.read_some()
    except BaseException:
        connection.abort()
        raise
