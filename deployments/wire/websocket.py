"""A WebSocket to a member. A replica's private listener gets the same handshake before it as any request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from deployments.wire.upstream import CONNECT_TIMEOUT_S, ConnectionBroken, ConnectionRefused
from serve_app.errors import UpstreamFailed
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
    report: EngineReport, path: str, headers: Mapping[str, str], *, max_message_bytes: int
) -> MemberSocket:
    """Connect to ``path`` (below ``/v1``) of a member.

    Raises:
        ConnectionRefused: no connection could be made, or its other end does not know the secret.
        UpstreamFailed: the member has no WebSocket there.
        ConnectionBroken: it ended in the middle of the handshake.
    """
    url = _url_of(report, path)
    options: dict[str, Any] = {}
    if report.private is not None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                options["sock"] = await _private_connection(report.private)
        except (OSError, TimeoutError, NotProven) as error:
            raise ConnectionRefused(
                f"No connection: {type(error).__name__}.", code="connection_refused"
            ) from error
    try:
        connection = await connect(
            url,
            additional_headers={**headers, **report.headers},
            user_agent_header="promptly",
            compression=None,
            proxy=None,
            open_timeout=CONNECT_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=max_message_bytes,
            max_queue=READ_AHEAD,
            **options,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise UpstreamFailed(
            f"The engine refused the WebSocket ({status}).", code="upstream_failed"
        ) from error
    except (InvalidHandshake, EOFError) as error:
        raise _broken(error) from error
    except (OSError, TimeoutError) as error:
        raise ConnectionRefused(
            f"No connection: {type(error).__name__}.", code="connection_refused"
        ) from error
    return MemberSocket(connection)


def _url_of(report: EngineReport, path: str) -> str:
    parts = urlsplit(report.url)
    below = report.api_prefix + path.removeprefix("/v1")
    return f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}{below}"


async def _private_connection(address: PrivateAddress) -> socket.socket:
    """A connection whose other end has proven that it knows the secret, as has this one."""
    connection = await _reached(address)
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
    return connection


async def _reached(address: PrivateAddress) -> socket.socket:
    """By the Unix socket, which exists only on the listener's own node, else by TCP."""
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
