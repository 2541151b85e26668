"""HTTP to the engines: keep-alive connections, and aiohttp's errors turned into ours.

This is the one place that knows aiohttp.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import coroutine
from typing import Any

import aiohttp
from yarl import URL

from serve_app.errors import UpstreamFailed
from serve_app.fleet import EngineReport

CONNECT_TIMEOUT_S = 2.0
IDLE_CONNECTION_S = 60.0
"""How long an unused connection is kept; the engine's listener keeps it far longer."""

READ_BUFFER = 1 << 16
"""Bytes read ahead of a slow client; beyond twice this the engine's socket is not read (back-pressure)."""


class ConnectionRefused(UpstreamFailed):
    """No connection came about, so nothing was sent: the request can safely go to another member."""


class UpstreamResponse:
    """An engine's response whose first body bytes have arrived."""

    def __init__(self, response: aiohttp.ClientResponse, first: bytes) -> None:
        self._response = response
        self._first: bytes | None = first
        self.first = first
        self.status = response.status
        self.headers = response.headers
        self.content_type = response.headers.get("content-type", "application/json")

    @property
    def is_stream(self) -> bool:
        return self.content_type.startswith("text/event-stream")

    async def read_some(self) -> bytes:
        """The next bytes of the body, the first ones included; ``b""`` at its end. May be cancelled without
        losing anything.

        Raises:
            UpstreamFailed: the connection broke before the end.
        """
        if self._first is not None:
            first, self._first = self._first, None
            if first:
                return first
        with _translated():
            return await self._response.content.readany()

    async def read(self) -> bytes:
        """The rest of the body."""
        parts: list[bytes] = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)

    async def load(self) -> None:
        """Read the whole body now, for whoever reads later. Closes the connection if that fails.

        Raises:
            UpstreamFailed: as :meth:`read_some`.
        """
        try:
            self._first = await self.read()
        except BaseException:
            self.close()
            raise

    def abort(self) -> None:
        """Closes the connection; whoever reads is told so."""
        self._response.close()

    def close(self) -> None:
        """Gives the connection back if the body was read to its end; else closes it, which aborts the request
        at the engine."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class EagerRequest(aiohttp.ClientRequest):
    """Sends its body in the caller's turn of the event loop, as aiohttp itself does from Python 3.12 on.

    Before, it starts a task for it: of a burst of requests, none reaches an engine until all of them have
    been read. Watch: the class can go with Python 3.11.
    """

    if sys.version_info < (3, 12):

        def write_bytes(self, *args: Any) -> Coroutine[Any, Any, None]:
            return _begun(super().write_bytes(*args))


@coroutine
def _rest(work: Coroutine[Any, Any, None], waited_for: Any) -> Generator[Any, Any, None]:
    """What is left of ``work``, which stopped at its first ``await``."""
    try:
        while True:
            try:
                result = yield waited_for
            except BaseException as error:
                waited_for = work.throw(error)
            else:
                waited_for = work.send(result)
    except StopIteration:
        return


async def _nothing() -> None:
    return


def _begun(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """``work`` as far as it gets now, and a coroutine for the rest."""
    try:
        waited_for = work.send(None)
    except StopIteration:
        return _nothing()
    return _rest(work, waited_for)


class UpstreamPool:
    """Connections to every engine this gateway talks to."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
        # No total timeout: phases and a request's own deadline bound it (see Dispatcher and Exchange.run).
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            request_class=EagerRequest,
        )

    async def open(
        self, report: EngineReport, method: str, target: str, body: bytes, headers: dict[str, str]
    ) -> UpstreamResponse:
        """Send a request and wait for the first bytes of the body. ``target`` is path and query, encoded, as
        it stands at the member. The caller closes the response; a wait that is cancelled closes it here.

        Raises:
            ConnectionRefused: nobody listens there.
            UpstreamFailed: the connection broke, or what came was no HTTP.
        """
        url = URL(report.url + target, encoded=True)  # no dots resolved, nothing decoded
        sent = headers | dict(report.headers) | {"accept-encoding": "identity"}
        with _translated():
            response = await self._session.request(
                method, url, data=body or None, headers=sent, allow_redirects=False
            )
        try:
            with _translated():
                first = await response.content.readany()
        except BaseException:
            response.close()
            raise
        return UpstreamResponse(response, first)

    async def fetch(self, report: EngineReport, target: str) -> bytes | None:
        """The body of ``GET target``; ``None`` unless it is answered with 200 in time. It also opens a
        connection ahead of the first request."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                response = await self.open(report, "GET", target, b"", {})
                try:
                    body = await response.read()
                finally:
                    response.close()
        except (UpstreamFailed, TimeoutError):
            return None
        return body if response.status == 200 else None

    async def close(self) -> None:
        await self._session.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ConnectionRefused(
            f"No connection: {type(error).__name__}.", code="connection_refused"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamFailed(f"The engine failed: {type(error).__name__}.", code="upstream_failed") from error
