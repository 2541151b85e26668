"""A WebSocket to a member. A replica's private listener gets the same handshake before it as any request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from deployments.wire.upstream import CONNECT_TIMEOUT_S, ConnectionBroken, ConnectionRefused
from serve_app.errors import UpstreamFailed, UpstreamTimeout
from serve_app.fleet import EngineReport
from serve_app.wire.handshake import REPLY_BYTES, Handshake, NotProven
from serve_app.wire.private_address import PrivateAddress

READ_AHEAD = 8
"""Messages that are read before the reader takes them; then the socket is paused."""

CLOSE_TIMEOUT_S = 1.0
SCHEMES = {"http": "ws", "https": "wss"}


class MemberSocket:
    """An open WebSocket. ``send`` waits while the member does not read; one reader calls ``receive``."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, message: str) -> None:
        """Raises: ConnectionBroken: the member has closed it."""
        try:
            await self._connection.send(message)
        except (WebSocketException, OSError) as error:
            raise _broken(error) from error

    async def receive(self) -> str | bytes:
        """The next message. Raises: ConnectionBroken: there is none, or it is too large."""
        try:
            return await self._connection.recv()
        except (WebSocketException, OSError) as error:
            raise _broken(error) from error

    async def close(self) -> None:
        """Say goodbye, for at most ``CLOSE_TIMEOUT_S``; then the connection is cut."""
        await self._connection.close()


async def open_socket(
    report: EngineReport,
    path: str,
    headers: Mapping[str, str],
    *,
    max_message_bytes: int,
    answer_timeout_s: float,
) -> MemberSocket:
    """Connect to ``path`` (below ``/v1``) of a member. The kernel answers within ``CONNECT_TIMEOUT_S``; the
    member's own process, which may be busy, has ``answer_timeout_s``.

    Raises:
        ConnectionRefused: no connection could be made, or its other end does not know the secret.
        UpstreamTimeout: the member did not answer the handshake in time.
        UpstreamFailed: the member has no WebSocket there.
        ConnectionBroken: it ended in the middle of the handshake.
    """
    url = _url_of(report, path)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reached = await (_dialled(url) if report.private is None else _reached(report.private))
    except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
        raise _refused(error) from error
    try:
        async with asyncio.timeout(answer_timeout_s):
            if report.private is not None:
                await _prove(reached, report.private)
            connection = await connect(
                url,
                sock=reached,
                additional_headers={**headers, **report.headers},
                user_agent_header="promptly",
                compression=None,
                proxy=None,
                open_timeout=None,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=max_message_bytes,
                max_queue=READ_AHEAD,
            )
        return MemberSocket(connection)
    except (WebSocketException, OSError, EOFError, ValueError, NotProven) as error:
        reached.close()  # also where the library failed before it took it over
        raise _failure(error, answer_timeout_s) from error
    except BaseException:  # cancelled
        reached.close()
        raise


def _failure(error: Exception, answer_timeout_s: float) -> Exception:
    """What a handshake that failed means to the caller."""
    match error:
        case InvalidStatus():
            status = error.response.status_code
            return UpstreamFailed(f"The engine refused the WebSocket ({status}).", code="upstream_failed")
        case TimeoutError():
            return UpstreamTimeout(answer_timeout_s)
        case OSError() | NotProven():
            return _refused(error)
    return _broken(error)  # a ValueError: a redirect, which is not followed


def _refused(error: Exception) -> ConnectionRefused:
    return ConnectionRefused(f"No connection: {type(error).__name__}.", code="connection_refused")


def _url_of(report: EngineReport, path: str) -> str:
    parts = urlsplit(report.url)
    below = report.api_prefix + path.removeprefix("/v1")
    return f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}{below}"


async def _prove(connection: socket.socket, address: PrivateAddress) -> None:
    """Both ends prove that they know the secret; else it is closed. Raises: NotProven, OSError."""
    try:
        loop = asyncio.get_running_loop()
        handshake = Handshake(address.secret, address.url)
        await loop.sock_sendall(connection, handshake.hello())
        reply = b""
        while len(reply) < REPLY_BYTES:
            part = await loop.sock_recv(connection, REPLY_BYTES - len(reply))
            if not part:
                raise NotProven("it hung up on a greeting")
            reply += part
        await loop.sock_sendall(connection, handshake.answer(reply))
    except BaseException:
        connection.close()
        raise


async def _dialled(url: str) -> socket.socket:
    """The first address of the URL's host that takes the connection. Raises: OSError."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    last: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            return await _connected(socket.socket(family, kind, protocol), address)
        except OSError as error:
            last = error
    raise last or OSError("the name has no address")


async def _reached(address: PrivateAddress) -> socket.socket:
    """A connection by the Unix socket, which exists only on the listener's own node, else by TCP."""
    if address.socket:
        with contextlib.suppress(OSError):
            return await _connected(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address.socket)
    parts = urlsplit(address.url)
    host, port = parts.hostname or "", parts.port or 80
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol: asyncio sets TCP_NODELAY (no Nagle delay) only if it is given.
    return await _connected(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP), (host, port))


async def _connected(connection: socket.socket, address: Any) -> socket.socket:
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _broken(error: Exception) -> ConnectionBroken:
    return ConnectionBroken(f"The engine's WebSocket ended: {type(error).__name__}.", code="upstream_failed")
