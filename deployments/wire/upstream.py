"""HTTP to the engines: requests over kept connections, and what goes wrong turned into our errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from deployments.wire.http1 import (
    BrokenConnection,
    Connection,
    ConnectionPool,
    ConnectTimeout,
    NoConnection,
    Origin,
    request_bytes,
)
from serve_app.errors import UpstreamFailed
from serve_app.fleet import EngineReport, Look
from serve_app.openai.sse import EventMeter
from serve_app.redaction import Redactor, StreamRedactor

CONNECT_TIMEOUT_S = 2.0
IDLE_CONNECTION_S = 60.0
"""How long an unused connection is kept where a member does not say (``EngineReport.idle_connection_s``); an
engine's own listener keeps it far longer."""

READ_BUFFER = 1 << 16
"""Bytes read ahead of a slow client; beyond twice this the engine's socket is not read (back-pressure)."""

KNOWN_REDACTORS = 1024
"""More than there are members at any time: those of replicas that are gone are forgotten."""


class ConnectionRefused(UpstreamFailed):
    """No connection came about, so nothing was sent: the request can safely go to another member."""


class ConnectionBroken(UpstreamFailed):
    """The request was sent, and the connection ended before the answer did, or what came was no HTTP."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """Of one event of a stream, and of a whole answer, in bytes."""

    event_bytes: int
    answer_bytes: int


class UpstreamResponse:
    """An engine's response whose first body bytes have arrived. Names of ``headers`` are in lower case.

    ``redactor`` knows the secrets that the server was sent, and all others. A server that is not ours may
    repeat them anywhere in what it answers, so its whole ``body`` is read through it.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        origin: Origin,
        connection: Connection,
        first: bytes,
        redactor: Redactor,
        *,
        redacts_body: bool,
        bounds: AnswerBounds,
        idle_s: float | None = None,
    ) -> None:
        self._pool = pool
        self._origin = origin
        self._idle_s = idle_s
        self._connection = connection
        self._bounds = bounds
        self._events = EventMeter()
        self._size = 0
        self._is_open = True
        self._first: bytes | None = first
        self.first = first
        self.status = connection.status
        self.redactor = redactor
        self._body_redactor = StreamRedactor(redactor) if redacts_body and redactor else None
        self.headers = {name: redactor.text(value) for name, value in connection.headers.items()}
        self.content_type = self.headers.get("content-type", "application/json")
        self.is_stream = self.content_type.startswith("text/event-stream")

    async def read_some(self) -> bytes:
        """The next bytes of the body, the first ones included; ``b""`` at its end. May be cancelled without
        losing anything.

        Raises:
            UpstreamFailed: the connection broke before the end; or the answer, or an event of a stream, is
                too long, and the connection is closed.
        """
        while True:
            data = await self._read_raw()
            self._check_size(data)
            if self._body_redactor is None:
                return data
            passed = self._body_redactor.feed(data)
            if passed or not data:
                return passed

    async def _read_raw(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            if first:
                return first
        with _translated():
            return await self._connection.read_some()

    def _check_size(self, data: bytes) -> None:
        """Whoever puts an event or an answer together must not do so for ever."""
        if self.is_stream:
            if self._events.feed(data) > self._bounds.event_bytes:
                self._give_up("event", self._bounds.event_bytes)
            return
        self._size += len(data)
        if self._size > self._bounds.answer_bytes:
            self._give_up("answer", self._bounds.answer_bytes)

    def _give_up(self, what: str, limit: int) -> NoReturn:
        self.abort()
        raise UpstreamFailed(
            f"The engine's {what} is larger than {limit} bytes (limits.max_{what}_bytes).",
            code=f"{what}_too_large",
        )

    async def read(self) -> bytes:
        """The rest of the body. Raises: as :meth:`read_some`; a stream as a whole is an answer, too."""
        parts, size = [], 0
        while part := await self.read_some():
            parts.append(part)
            size += len(part)
            if size > self._bounds.answer_bytes:
                self._give_up("answer", self._bounds.answer_bytes)
        return b"".join(parts)

    async def load(self) -> None:
        """Read the whole body now, for whoever reads later. Closes the connection if that fails.

        Raises:
            UpstreamFailed: as :meth:`read_some`.
        """
        try:
            self._first = await self.read()
            self._body_redactor, self._size = None, 0  # it was read through it, and is read once more
        except BaseException:
            self.close()
            raise

    def abort(self) -> None:
        """Closes the connection; whoever reads is told so."""
        if self._is_open:
            self._connection.abort()

    def close(self) -> None:
        """Gives the connection back if the body was read to its end; else closes it, which aborts the request
        at the engine. May be called again."""
        if self._is_open:
            self._is_open = False
            self._pool.give_back(self._origin, self._connection, self._idle_s)


class UpstreamPool:
    """Connections to every engine this gateway talks to."""

    def __init__(self, bounds: AnswerBounds, secrets: Iterable[str] = ()) -> None:
        """``secrets``: those that may be repeated in nothing that any server answers."""
        self._bounds = bounds
        self._secrets = tuple(secrets)
        self._redactors: dict[str, Redactor] = {}
        # An answer has no time limit here: phases and its own deadline bound it (Dispatcher, Exchange.run).
        self._pool = ConnectionPool(
            connect_timeout_s=CONNECT_TIMEOUT_S, idle_s=IDLE_CONNECTION_S, read_ahead=READ_BUFFER
        )

    async def open(
        self,
        report: EngineReport,
        method: str,
        target: str,
        body: bytes,
        headers: dict[str, str],
        *,
        fresh: bool = False,
    ) -> UpstreamResponse:
        """Send a request and wait for the first bytes of the body. ``target`` is path and query, encoded, as
        it stands at the member. The caller closes the response; a wait that is cancelled closes it here. A
        kept connection that the member had closed meanwhile is replaced, whatever the request; ``fresh``
        begins with a new one.

        Raises:
            ConnectionRefused: nobody listens there.
            ConnectionBroken: it ended before the body began, or what came was no HTTP.
        """
        origin = Origin.of(report.url, report.private)
        with _translated():
            request = request_bytes(origin, method, target, headers | dict(report.headers), body)
            connection, first = await self._pool.begin(origin, request, fresh=fresh)
        return UpstreamResponse(
            self._pool,
            origin,
            connection,
            first,
            self._redactor(report),
            redacts_body=report.is_static,
            bounds=self._bounds,
            idle_s=report.idle_connection_s,
        )

    def _redactor(self, report: EngineReport) -> Redactor:
        """Of all secrets that are known and the member's own, which is new with every start of a replica."""
        own = "\n".join(report.headers.values())
        if own not in self._redactors:
            if len(self._redactors) >= KNOWN_REDACTORS:
                self._redactors.clear()
            self._redactors[own] = Redactor([*self._secrets, *report.headers.values()])
        return self._redactors[own]

    async def look(self, report: EngineReport, target: str, limit_s: float) -> Look:
        """What ``GET target`` says of the member's health. It also opens a connection ahead of a request."""
        try:
            async with asyncio.timeout(limit_s):
                status, _ = await self._get(report, target)
        except TimeoutError:
            return Look.SILENT
        except ConnectionRefused as error:
            return Look.SILENT if isinstance(error.__cause__, ConnectTimeout) else Look.NOBODY
        except UpstreamFailed:
            return Look.UNWELL
        return Look.WELL if status == 200 else Look.UNWELL

    async def fetch(self, report: EngineReport, target: str) -> bytes | None:
        """The body of ``GET target``; ``None`` unless it is answered with 200 in time. It also opens a
        connection ahead of the first request."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                status, body = await self._get(report, target)
        except (UpstreamFailed, TimeoutError):
            return None
        return body if status == 200 else None

    async def _get(self, report: EngineReport, target: str) -> tuple[int, bytes]:
        response = await self.open(report, "GET", target, b"", {})
        try:
            return response.status, await response.read()
        finally:
            response.close()

    async def close(self) -> None:
        self._pool.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except NoConnection as error:
        raise ConnectionRefused(f"No connection: {error}.", code="connection_refused") from error
    except (BrokenConnection, ValueError) as error:
        raise ConnectionBroken(f"The engine failed: {error}.", code="upstream_failed") from error
