"""The connections to one server, and the requests over them."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

from benchmarks.load.requests import WANTED_HEADERS, Request, Sample
from benchmarks.load.response import Response, count_tokens, judge

CONNECT_S = 5.0
LIMIT_S = 120.0
TIME_LIMIT = "time limit"


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self._response = Response()
        self._ended: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes, response: Response) -> None:
        """Send a request, and receive until the response is whole or is not HTTP, or until the connection
        ends."""
        self._response = response
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._ended

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        try:
            self._response.feed(data, time.perf_counter())
        except (ValueError, KeyError) as error:
            self._end(error)
        else:
            if self._response.complete:
                self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        ended, self._ended = self._ended, None
        if ended is None or ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)


class Client:
    """The connections to one server for one run of at most ``limit_s`` seconds."""

    def __init__(self, url: str, limit_s: float = LIMIT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url!r} is not an http:// URL")
        self._host, self._port, self._prefix = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._limit_s = limit_s

    async def __aenter__(self) -> Self:
        self._started = time.perf_counter()
        self._deadline = asyncio.get_running_loop().time() + self._limit_s
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._open))

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self._started

    async def send(self, request: Request, due_at: float | None = None) -> Sample:
        """Send one request now. Every failure is recorded in the sample, including the end of the time
        limit."""
        response, sent_at = Response(), self.now()
        error = await self._attempt(request, response) if sent_at < self._limit_s else TIME_LIMIT
        return self._sample(request, response, sent_at, sent_at if due_at is None else due_at, error)

    async def _attempt(self, request: Request, response: Response) -> str | None:
        """Make one attempt; returns its error, ``None`` if there is none."""
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._fetch(request, response)
        except TimeoutError:
            return TIME_LIMIT
        except OSError:
            return "no connection"
        except (ValueError, KeyError):
            return "no HTTP"
        return judge(response)

    async def _fetch(self, request: Request, response: Response) -> None:
        connection = await self._connection()
        try:
            await connection.exchange(self._encode(request), response)
        finally:
            if response.keeps_alive and not connection.closed.done():
                self._idle.append(connection)
            else:
                connection.abort()

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed.done():
                return connection
            self._open.discard(connection)
        opening = asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        try:
            _, connection = await asyncio.wait_for(opening, CONNECT_S)
        except TimeoutError as error:
            raise ConnectionError("no connection in time") from error
        self._open.add(connection)
        return connection

    def _encode(self, request: Request) -> bytes:
        headers = {
            "host": f"{self._host}:{self._port}",
            "content-type": "application/json",
            **request.headers,
        }
        headers["content-length"] = str(len(request.body))
        lines = [f"{'POST' if request.body else 'GET'} {self._prefix}{request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body

    def _sample(
        self, request: Request, response: Response, sent_at: float, due_at: float, error: str | None
    ) -> Sample:
        body = b"".join(response.pieces)
        chunks = response.chunks_at
        first_at = response.first_at
        return Sample(
            status=response.status,
            sent_at=sent_at,
            ended_at=self.now(),
            late_s=sent_at - due_at,
            ttft_s=None if first_at is None else first_at - self._started - sent_at,
            gaps_s=tuple(later - sooner for sooner, later in pairwise(chunks)),
            tokens=count_tokens(response, body),
            error=error,
            headers={name: response.headers[name] for name in WANTED_HEADERS if name in response.headers},
            body=body if request.keep_body else None,
        )
