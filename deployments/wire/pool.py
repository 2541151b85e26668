"""Connections to servers: made when there is none idle, kept, and closed when they are old."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable

from deployments.wire.http1 import BrokenConnection, Connection, LongBody, NoConnection, Origin
from serve_app.wire.handshake import Handshake, NotProven
from serve_app.wire.private_address import PrivateAddress

MAX_ASKED_BYTES = 1 << 26
"""Limit of a response that :meth:`ConnectionPool.ask` reads whole. Those are look-ups and the like, thousands
of times smaller."""


class ConnectTimeout(NoConnection):
    """The connection was neither accepted nor refused in time."""


class Connector:
    """Makes connections: by TCP, TLS, or to a private listener. ``on_end`` is called with each that ended."""

    def __init__(self, timeout_s: float, read_ahead: int, on_end: Callable[[Connection], None]) -> None:
        self._timeout_s = timeout_s
        self._read_ahead = read_ahead
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._tls: ssl.SSLContext | None = None

    async def connect(self, origin: Origin) -> Connection:
        """A new connection.

        Raises:
            NoConnection: none could be made in time, or its other end did not prove that it knows the secret.
        """
        began_ns = time.perf_counter_ns()
        try:
            async with asyncio.timeout(self._timeout_s):
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
        connection.connect_ns = time.perf_counter_ns() - began_ns
        return connection

    async def _reach(self, origin: Origin) -> Connection:
        _, connection = await self._loop.create_connection(
            self._new, origin.host, origin.port, ssl=self._context() if origin.is_tls else None
        )
        return connection

    async def _reach_private(self, origin: Origin, address: PrivateAddress) -> Connection:
        """Connect by the unix socket, which exists only on the listener's own node, else by TCP.

        Raises:
            NotProven: the listener there does not know the secret.
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
        return Connection(self._read_ahead, self._on_end)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class ConnectionPool:
    """Connections by origin. The most recently used one is reused first, so that surplus ones expire. It is
    long because every way in which a connection is taken, kept and closed is here.

    ``idle_s``: how long an idle connection is kept unless the caller says otherwise. It must be less than the
    server's keep-alive time: a request sent while the server closes is lost."""

    def __init__(self, *, connect_timeout_s: float, idle_s: float, read_ahead: int) -> None:
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._connector = Connector(connect_timeout_s, read_ahead, self._open.discard)
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0

    async def take(self, origin: Origin) -> Connection:
        """An idle connection, or a new one. The caller must give it back or abort it.

        Raises:
            NoConnection: no connection could be made in time.
        """
        idle, now = self._idle.get(origin), self._loop.time()
        while idle:
            connection = idle.pop()
            if connection.is_young(now):
                return connection
            connection.abort()
        return await self._connect(origin)

    async def begin(
        self, origin: Origin, request: bytes, body: LongBody | None = None, *, fresh: bool = False
    ) -> tuple[Connection, bytes]:
        """Send a request, with ``body`` behind it; returns the connection and the first bytes of the
        response's body (``b""`` if it is empty). If a kept connection turns out to be closed by the server,
        the request is sent again on a new one, once; ``fresh`` uses a new one from the start. The caller must
        give the connection back or abort it.

        Raises:
            NoConnection: no connection could be made in time; nothing was sent.
            BrokenConnection: the connection ended before the body began.
        """
        connection = await (self._connect(origin) if fresh else self.take(origin))
        try:
            return connection, await _first_bytes(connection, request, body)
        except BrokenConnection:
            if not connection.was_stale:
                raise
        try:
            connection = await self._connect(origin)
        except NoConnection as error:  # the request was sent once: the caller must not treat it as unsent
            raise BrokenConnection("closed, and nothing listens there any more") from error
        return connection, await _first_bytes(connection, request, body)

    async def ask(self, origin: Origin, request: bytes, most: int = MAX_ASKED_BYTES) -> tuple[int, bytes]:
        """Send one request; returns the status and whole body of the response. Cancelling it closes the
        connection.

        Raises:
            NoConnection: no connection could be made in time.
            BrokenConnection: the connection ended before the response, or the body has over ``most`` bytes.
        """
        connection, part = await self.begin(origin, request)
        try:
            parts, size = [], 0
            while part:
                parts.append(part)
                size += len(part)
                if size > most:
                    raise BrokenConnection("an answer without an end")
                part = await connection.read_some()
        except BaseException:
            connection.abort()
            raise
        status = connection.status  # read it before another request may use the connection
        self.give_back(origin, connection)
        return status, b"".join(parts)

    def give_back(self, origin: Origin, connection: Connection, idle_s: float | None = None) -> None:
        """Return a connection whose response was read; it is closed if it cannot be kept. ``idle_s``
        overrides the pool's idle time."""
        if not connection.can_be_kept or connection not in self._open:
            connection.abort()
            return
        until = self._loop.time() + (self._idle_s if idle_s is None else idle_s)
        connection.keep(until)
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None or until < self._sweep_at:
            self._sweep_from(until)

    def close(self) -> None:
        """Close all connections, including those in use."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()

    async def _connect(self, origin: Origin) -> Connection:
        connection = await self._connector.connect(origin)
        self._open.add(connection)
        return connection

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


async def _first_bytes(connection: Connection, request: bytes, body: LongBody | None) -> bytes:
    """Send a request and return the first bytes of the response's body. Any error closes the connection."""
    try:
        connection.send(request)
        at, is_taken = 0, True
        while body is not None and is_taken and at < body.size:
            part = await body.read(at)
            at += len(part)
            is_taken = await connection.send_more(part)
        return await connection.read_some()
    except BaseException:
        connection.abort()
        raise
