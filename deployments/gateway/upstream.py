"""HTTP to the engines: keep-alive connections, and aiohttp's errors turned into ours.

This is the one place that knows aiohttp.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from yarl import URL

from deployments.listener import SECRET_HEADER
from serve_app.errors import UpstreamFailed
from serve_app.fleet import Member

CONNECT_TIMEOUT_S = 2.0
IDLE_CONNECTION_S = 60.0
"""How long an unused connection is kept; the engine's listener keeps it far longer."""

READ_BUFFER = 1 << 16
"""Bytes read ahead of a slow client; beyond twice this the engine's socket is not read (back-pressure)."""


class ConnectionRefused(Exception):
    """No connection came about, so nothing was sent: the request can safely go to another member."""


class UpstreamResponse:
    """An engine's response whose first body bytes have arrived."""

    def __init__(self, response: aiohttp.ClientResponse, first: bytes) -> None:
        self._response = response
        self.first = first
        self.status = response.status
        self.content_type = response.headers.get("content-type", "application/json")

    @property
    def is_stream(self) -> bool:
        return self.content_type.startswith("text/event-stream")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, the first bytes included, as it arrives.

        Raises:
            UpstreamFailed: the connection broke before the end.
        """
        with _translated():
            chunk = self.first
            while chunk:
                yield chunk
                chunk = await self._response.content.readany()

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])


class UpstreamPool:
    """Connections to every engine this gateway talks to."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
        # No total timeout: a request's own deadline bounds it (see Exchange.run).
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, read_bufsize=READ_BUFFER
        )

    @asynccontextmanager
    async def request(
        self, member: Member, method: str, target: str, body: bytes, headers: dict[str, str]
    ) -> AsyncIterator[UpstreamResponse]:
        """Send a request and wait for the first bytes of the body. ``target`` is path and query, encoded.
        Leaving early closes the connection, which aborts the request at the engine.

        Raises:
            ConnectionRefused: nobody listens there.
            UpstreamFailed: the connection broke, or what came was no HTTP.
        """
        url = URL(member.report.url + target, encoded=True)  # as it is: no dots resolved, nothing decoded
        sent = headers | {SECRET_HEADER: member.report.secret, "accept-encoding": "identity"}
        with _translated():
            response = await self._session.request(
                method, url, data=body or None, headers=sent, allow_redirects=False
            )
        try:
            with _translated():
                first = await response.content.readany()
            yield UpstreamResponse(response, first)
        finally:
            # Returns the connection to the pool if the body was read to its end, else closes it.
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def touch(self, member: Member) -> None:
        """Open a connection ahead of the first request. A failure is no news: requests will notice."""
        try:
            async with (
                asyncio.timeout(CONNECT_TIMEOUT_S),
                self.request(member, "GET", "/health", b"", {}) as response,
            ):
                await response.read()
        except (ConnectionRefused, UpstreamFailed, TimeoutError):
            return

    async def close(self) -> None:
        await self._session.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ConnectionRefused(str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamFailed(f"The engine failed: {type(error).__name__}.", code="upstream_failed") from error
