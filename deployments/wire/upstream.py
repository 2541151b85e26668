"""HTTP to the engines: requests over kept connections; failures become our errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from deployments.wire.http1 import (
    BrokenConnection,
    Connection,
    LongBody,
    NoConnection,
    Origin,
    request_bytes,
)
from deployments.wire.pool import ConnectionPool, ConnectTimeout
from serve_app.errors import UpstreamFailed
from serve_app.fleet import EngineReport, Member, Probe
from serve_app.openai import sse
from serve_app.openai.usage import AnswerEnd
from serve_app.redaction import Redactor, StreamRedactor
from serve_app.wire.private_address import PrivateAddress

CONNECT_TIMEOUT_S = 2.0
IDLE_CONNECTION_S = 60.0
"""How long an idle connection is kept if the member does not say (``EngineReport.idle_connection_s``); an
engine's own listener keeps it far longer."""

READ_BUFFER = 1 << 16
"""Bytes read ahead of a slow client; above twice this the engine's socket is paused (back-pressure)."""

KNOWN_MEMBERS = 1024
"""More than there are members at any time. When it is reached, what is remembered of all of them is dropped,
and with it that of replicas that are gone."""


class ConnectionRefused(UpstreamFailed):
    """No connection could be made, so nothing was sent: the request can safely go to another member."""


class ConnectionBroken(UpstreamFailed):
    """The request was sent, but the connection ended before the response did, or the bytes were not HTTP."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """Size limits in bytes: of one event of a stream, and of a whole response."""

    event_bytes: int
    answer_bytes: int


class UpstreamResponse:
    """An engine's response whose first body bytes have arrived. Names of ``headers`` are in lower case.
    ``give_back`` returns its connection to the pool.

    ``redactor`` knows all secrets, including those sent to this server. An external server may repeat them
    anywhere in its response, so its whole body passes through the redactor (``redacts_body``).

    It is long because every token passes here, in two ways, and each step in between would cost a call.
    """

    def __init__(
        self,
        connection: Connection,
        give_back: Callable[[], None],
        first: bytes,
        redactor: Redactor,
        *,
        redacts_body: bool,
        bounds: AnswerBounds,
    ) -> None:
        self._connection = connection
        self._give_back = give_back
        self._bounds = bounds
        self._events = sse.EventMeter()
        self._size = 0
        self._is_open = True
        self._first: bytes | None = first
        self.end = AnswerEnd()
        self.first = first
        self._failure: UpstreamFailed | None = None
        self.status, self.connect_ns = connection.status, connection.connect_ns  # 0: a kept connection
        self.member: Member | None = None
        """Where it is noted when bytes arrived."""
        self.waiting_since: float | None = None
        """Since when a reader waits for bytes (monotonic seconds); ``None`` while no one does."""
        self.is_complete = False
        """It was read to its end."""
        self.redactor = redactor
        self._body_redactor = StreamRedactor(redactor) if redacts_body and redactor else None
        self.headers = {name: redactor.text(value) for name, value in connection.headers.items()}
        self.content_type = self.headers.get("content-type", "application/json")
        self.is_stream = self.content_type.startswith("text/event-stream")

    async def read_some(self) -> bytes:
        """The next bytes of the body, including the first ones; ``b""`` at its end. Cancelling it loses no
        data.

        Raises:
            UpstreamFailed: the connection broke before the end, the reader waited too long (:meth:`abort`),
                or the response or an event of the stream is too large (the connection is then closed).
        """
        self.waiting_since = time.monotonic()
        try:  # every token passes here: no context manager, no method for a step
            while True:
                data, self._first = self._first, None
                if not data:
                    data = await self._connection.read_some()
                excess = self._excess(data)
                if excess is not None:
                    self.abort()
                    raise excess
                passed = data if self._body_redactor is None else self._body_redactor.feed(data)
                if passed or not data:
                    break
        except BrokenConnection as error:
            raise self._failure or _broken(error) from error
        finally:
            self.waiting_since = None
        if self.member is not None:
            self.member.last_byte_at = time.monotonic()
        if not passed:
            if self._failure is not None:
                raise self._failure
            self.is_complete = True
        self.end.feed(passed)
        return passed

    def read_now(self) -> bytes | None:
        """The next bytes if they are there; ``b""``: not yet; ``None``: only :meth:`read_some` can tell, as
        of the end or an error."""
        data = None if self._first is not None else self._connection.read_now()
        if not data:
            return data
        if self._events.size or not self.is_stream or not data.endswith(sse.END):  # else: whole events
            excess = self._excess(data)
            if excess is not None:
                self.abort(excess)  # `read_some` raises it
                return None
        now = time.monotonic()
        if self.waiting_since is not None:
            self.waiting_since = now
        if self.member is not None:
            self.member.last_byte_at = now
        passed = data if self._body_redactor is None else self._body_redactor.feed(data)
        self.end.feed(passed)
        return passed

    def listen(self, arrived: Callable[[], None]) -> bool:
        """See :meth:`Connection.listen`. Until :meth:`unlisten`, a reader waits for bytes."""
        if self._first is not None or not self._connection.listen(arrived):
            return False
        self.waiting_since = time.monotonic()
        return True

    def unlisten(self) -> None:
        self._connection.unlisten()
        self.waiting_since = None

    def _excess(self, data: bytes) -> UpstreamFailed | None:
        """The error if an event of the stream, or an answer that is none, is too large with these bytes."""
        if self.is_stream:
            if self._events.feed(data) <= self._bounds.event_bytes:
                return None
            return _too_large("event", self._bounds.event_bytes)
        self._size += len(data)
        return None if self._size <= self._bounds.answer_bytes else self._answer_too_large()

    def _answer_too_large(self) -> UpstreamFailed:
        return _too_large("answer", self._bounds.answer_bytes)

    async def read(self) -> bytes:
        """The rest of the body. Raises: as :meth:`read_some`; a stream has a whole response's limit, too."""
        parts, size = [], 0
        while part := await self.read_some():
            parts.append(part)
            size += len(part)
            if size > self._bounds.answer_bytes:
                self.abort()
                raise self._answer_too_large()
        return b"".join(parts)

    async def load(self) -> None:
        """Read the whole body now, so that later reads return it. Closes the connection if that fails.
        Raises: as :meth:`read_some`."""
        try:
            self._first = await self.read()
            # It is read once more, already redacted.
            self._body_redactor, self._size, self.is_complete = None, 0, False
            self.end.again()
        except BaseException:
            self.close()
            raise

    def abort(self, failure: UpstreamFailed | None = None) -> None:
        """Close the connection; a waiting reader gets ``failure``, or the error of a broken connection."""
        self._failure = failure
        if self._is_open:
            self._connection.abort()

    def close(self) -> None:
        """Give the connection back if the body was read to its end; else close it, which aborts the request
        at the engine. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._give_back()


class UpstreamPool:
    """Connections to every engine this gateway talks to."""

    def __init__(self, bounds: AnswerBounds, secrets: Iterable[str] = ()) -> None:
        """``secrets``: values that must not appear in any server's response."""
        self._bounds = bounds
        self._secrets = tuple(secrets)
        self._redactors: dict[str, Redactor] = {}
        self._origins: dict[tuple[str, PrivateAddress | None], Origin] = {}
        # A response has no time limit here: phases and its deadline bound it (Dispatcher, Exchange.run).
        self._pool = ConnectionPool(
            connect_timeout_s=CONNECT_TIMEOUT_S, idle_s=IDLE_CONNECTION_S, read_ahead=READ_BUFFER
        )

    async def open(
        self,
        report: EngineReport,
        method: str,
        target: str,
        body: bytes | LongBody,
        headers: dict[str, str],
        *,
        fresh: bool = False,
    ) -> UpstreamResponse:
        """Send a request and wait for the first bytes of the body. ``target`` is the member's path and query,
        encoded. The caller must close the response; cancelling this call closes the connection. If the member
        had closed a kept connection, the request, of any kind, is sent again on a new one; ``fresh`` uses a
        new one from the start.

        Raises:
            ConnectionRefused: no connection could be made.
            ConnectionBroken: it ended before the body began, or the bytes were not HTTP.
        """
        origin = self._origin(report)
        try:
            fields = {**headers, **report.headers}
            if isinstance(body, bytes):
                request, rest = request_bytes(origin, method, target, fields, body), None
            else:
                request, rest = request_bytes(origin, method, target, fields, b"", follow=body.size), body
            connection, first = await self._pool.begin(origin, request, rest, fresh=fresh)
        except NoConnection as error:
            raise ConnectionRefused(f"No connection: {error}.", code="connection_refused") from error
        except (BrokenConnection, ValueError) as error:
            raise _broken(error) from error
        return UpstreamResponse(
            connection,
            partial(self._pool.give_back, origin, connection, report.idle_connection_s),
            first,
            self.redactor(report),
            redacts_body=report.is_static,
            bounds=self._bounds,
        )

    def _origin(self, report: EngineReport) -> Origin:
        """Parsing a URL costs as much as many a check on a request's way."""
        name = report.url, report.private
        origin = self._origins.get(name)
        if origin is None:
            if len(self._origins) >= KNOWN_MEMBERS:
                self._origins.clear()
            origin = self._origins[name] = Origin.of(report.url, report.private)
        return origin

    def redactor(self, report: EngineReport) -> Redactor:
        """The redactor for all known secrets and the member's own, which changes with every replica start."""
        own = "\n".join(report.headers.values())
        if own not in self._redactors:
            if len(self._redactors) >= KNOWN_MEMBERS:
                self._redactors.clear()
            self._redactors[own] = Redactor([*self._secrets, *report.headers.values()])
        return self._redactors[own]

    async def probe(self, report: EngineReport, target: str, limit_s: float) -> Probe:
        """The member's health by ``GET target``. This also opens a connection ahead of the next request."""
        try:
            async with asyncio.timeout(limit_s):
                status, _ = await self._get(report, target)
        except TimeoutError:
            return Probe.TIMED_OUT
        except ConnectionRefused as error:
            return Probe.TIMED_OUT if isinstance(error.__cause__, ConnectTimeout) else Probe.REFUSED
        except UpstreamFailed:
            return Probe.UNHEALTHY
        return Probe.HEALTHY if status == 200 else Probe.UNHEALTHY

    async def fetch(self, report: EngineReport, target: str) -> bytes | None:
        """The body of ``GET target``; ``None`` unless the status is 200 and it arrives in time. This also
        opens a connection ahead of the first request."""
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


def _too_large(what: str, limit: int) -> UpstreamFailed:
    return UpstreamFailed(
        f"The engine's {what} is larger than {limit} bytes (limits.max_{what}_bytes).",
        code=f"{what}_too_large",
    )


def _broken(error: Exception) -> ConnectionBroken:
    return ConnectionBroken(f"The engine failed: {error}.", code="upstream_failed")
