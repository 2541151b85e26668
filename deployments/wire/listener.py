"""A replica's own HTTP listener: the data plane for tokens and for the calls of a look-up.

It listens on a free port of the node's address (of ``network``'s range, where one is set), and on a unix
socket for callers on the same node. Both ends prove that they know the secret of this start before anything
else is read (``serve_app/wire/handshake.py``). Gateways learn its address through Ray's control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import math
import os
import random
import secrets
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deployments.platform.http_protocol import connection_of
from serve_app.errors import Forbidden, SettingsError
from serve_app.settings.network import ANY_PORT
from serve_app.wire.handshake import GREETING, HELLO_BYTES, PROOF_BYTES, Handshake, NotProven
from serve_app.wire.private_address import MAX_SOCKET_PATH, PrivateAddress

KEEP_ALIVE_S = 3600
"""Longer than any gateway keeps an idle connection, so that the gateway always closes first (if the server
closes first, a request that was just sent can be lost)."""

STOP_GRACE_S = 1.0
"""After a drain begins, gateways may still send requests until their next poll of the replicas."""

HANDSHAKE_TIMEOUT_S = 5.0
"""Our own callers need a millisecond; other connections are closed after this time."""

logger = logging.getLogger("ray.serve")


async def read_body(receive: Receive) -> bytes | None:
    """The whole body of a request; ``None`` if the sender disconnected before its end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


class PrivateListener:
    """Serves an ASGI app on this replica's own sockets, in the replica's event loop."""

    def __init__(
        self,
        app: ASGIApp,
        at: str | socket.socket,
        *,
        ports: range = ANY_PORT,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """``at``: the address to listen on, or what :func:`listening` gave for it.

        Raises: SettingsError: none of ``ports`` is free.
        """
        self._counted = _Counted(app)
        self._sockets = [listening(at, ports) if isinstance(at, str) else at]
        self._unix = _UnixSocket.bind()
        self.address = PrivateAddress(
            url=_url(*self._sockets[0].getsockname()[:2]),
            secret=secrets.token_urlsafe(32),
            socket="" if self._unix is None else str(self._unix.path),
        )
        protocol = functools.partial(_ProvenConnection, address=self.address, timeout_s=handshake_timeout_s)
        self._server = _EmbeddedServer(
            uvicorn.Config(
                self._counted,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="websockets-sansio",  # `/v1/realtime`
                ws_per_message_deflate=False,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            ),
            None if self._unix is None else self._unix.listening,
        )
        self._serving: asyncio.Task[None] | None = None

    @property
    def active(self) -> int:
        """The number of requests in flight."""
        return self._counted.active

    def start(self) -> None:
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=self._sockets))

    async def stop(self, drain_timeout_s: float) -> None:
        """Let requests in flight finish, for at most ``drain_timeout_s`` (whole seconds), then close."""
        if self._serving is None:
            return
        started = time.monotonic()
        await asyncio.sleep(min(STOP_GRACE_S, drain_timeout_s))
        await self.close(max(0.0, drain_timeout_s - (time.monotonic() - started)))

    async def close(self, timeout_s: float) -> None:
        """Refuse new connections and close idle ones now; cancel the requests still in flight after
        ``timeout_s`` (whole seconds)."""
        if self._serving is None:
            return
        self._server.config.timeout_graceful_shutdown = math.ceil(timeout_s)
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        await serving
        self.remove_socket()

    def remove_socket(self) -> None:
        """Remove the unix socket from disk; no new connection can be made through it."""
        if self._unix is not None:
            self._unix.remove()


class _Counted:
    """Wraps an app and counts its requests in flight."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.active += 1
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            logger.warning("an answer was cut short: the drain's time is over")
            raise
        finally:
            self.active -= 1


class _ProvenConnection(HttpToolsProtocol):
    """uvicorn's protocol behind a handshake. HTTP without the handshake gets a 403 and is not parsed."""

    def __init__(self, *args: Any, address: PrivateAddress, timeout_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timeout_s = timeout_s
        self._handshake = Handshake(address.secret, address.url)
        self._received = b""
        self._has_greeted = False
        self._is_proven = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._deadline = self.loop.call_later(self._timeout_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_proven:
            super().data_received(data)
            return
        self._received += data
        try:
            self._listen()
        except NotProven as error:
            logger.info("a private listener refused a connection: %s", error)
            self.transport.close()

    def _listen(self) -> None:
        """Advance the handshake by the bytes received. Raises: NotProven."""
        if not self._has_greeted:
            if not self._received.startswith(GREETING[: len(self._received)]):
                self.transport.write(_forbidden())
                raise NotProven("no greeting")
            if len(self._received) < HELLO_BYTES:
                return
            self.transport.write(self._handshake.reply(self._take(HELLO_BYTES)))
            self._has_greeted = True
        if len(self._received) < PROOF_BYTES:
            return
        self._handshake.check(self._take(PROOF_BYTES))
        self._is_proven = True
        self._cancel_deadline()
        request = self._take(len(self._received))
        if request:
            super().data_received(request)

    def _take(self, length: int) -> bytes:
        taken, self._received = self._received[:length], self._received[length:]
        return taken

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without signal handlers, because Ray owns the process. It also serves a unix socket, which
    uvloop's ``create_server`` does not accept."""

    def __init__(self, config: uvicorn.Config, unix: socket.socket | None) -> None:
        super().__init__(config)
        self._unix = unix

    def capture_signals(self):  # type: ignore[no-untyped-def]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._unix is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(lambda: connection_of(self), sock=self._unix))


class _UnixSocket:
    """A unix socket in its own folder, which only this user may enter."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self.path = path
        self.listening = listening

    @classmethod
    def bind(cls) -> _UnixSocket | None:
        """Bind a new socket. ``None`` if all candidate folders have too long a path or are not writable; then
        only TCP is used."""
        for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
            with contextlib.suppress(OSError):
                folder = Path(tempfile.mkdtemp(prefix="promptly-", dir=parent))  # mode 0700
                path = folder / "s"
                if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
                    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    listening.bind(str(path))
                    listening.listen()
                    return cls(path, listening)
                folder.rmdir()
        logger.info("no unix socket: the names of %s and /tmp are too long for one", tempfile.gettempdir())
        return None

    def remove(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listening(host: str, ports: range = ANY_PORT) -> socket.socket:
    """A socket that listens on one of ``ports``, taken in random order: those that start together seldom
    try the same. Connections made before a server takes it wait for it.

    Raises:
        SettingsError: all of them are in use.
    """
    for port in random.sample(ports, len(ports)):
        listener = _socket_of(host)
        try:
            listener.bind((host, port))
            listener.listen()  # at once: a port that is only bound can be bound again
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return listener
    raise SettingsError(
        f"`network.min_port` to `network.max_port`: all ports from {ports[0]} to {ports[-1]} are in use at "
        f"{host}; give the range more ports"
    )


def _socket_of(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol: asyncio sets TCP_NODELAY (no Nagle delay) only if it is given.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Ports of a range return while connections of the replica that had them are still in TIME_WAIT.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _forbidden() -> bytes:
    """The bytes of a whole 403 response."""
    error = Forbidden("This is a private listener; send requests to the gateway.", code="private_listener")
    body = error.body()
    head = f"HTTP/1.1 {error.status} Forbidden\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
