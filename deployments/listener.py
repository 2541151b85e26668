"""An engine replica's own HTTP listener: the data plane that tokens travel on.

It listens on a random port of the node's address, and answers only requests that carry the secret of
this start; gateways learn both through Ray's control plane.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
import socket
import time

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.errors import Forbidden

SECRET_HEADER = "x-promptly-secret"
KEEP_ALIVE_S = 3600
"""Longer than any gateway keeps an idle connection, so that the gateway is always the one to close it
(a server that closes first can lose a request that is already on its way)."""

STOP_GRACE_S = 1.0
"""After a drain begins, gateways may send for one more poll before they know."""

logger = logging.getLogger("ray.serve")


async def read_body(receive: Receive) -> bytes | None:
    """The whole body of a request; ``None`` if its sender left before the end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


class SecretGate:
    """Answers 403 to anything without the secret, and counts what is being answered."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._secret = secret.encode()
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not self._is_open_to(scope):
            await _send_forbidden(send)
            return
        self.active += 1
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            logger.warning("an answer was cut short: the drain's time is over")
            raise
        finally:
            self.active -= 1

    def _is_open_to(self, scope: Scope) -> bool:
        header = SECRET_HEADER.encode()
        given = next((value for name, value in scope["headers"] if name == header), b"")
        return hmac.compare_digest(given, self._secret)


class PrivateListener:
    """Serves an ASGI app on a socket of this replica's own, in the replica's event loop."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._gate = SecretGate(app, self.secret)
        self._socket = _bind(host)
        port = self._socket.getsockname()[1]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._server = _EmbeddedServer(
            uvicorn.Config(
                self._gate,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    @property
    def active(self) -> int:
        """Requests being answered now."""
        return self._gate.active

    def start(self) -> None:
        self._socket.listen()  # whoever connects before the server runs waits for it
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._socket]))

    async def stop(self, drain_timeout_s: float) -> None:
        """Let running answers finish, for at most ``drain_timeout_s`` (whole seconds); then close."""
        if self._serving is None:
            return
        started = time.monotonic()
        await asyncio.sleep(min(STOP_GRACE_S, drain_timeout_s))
        await self.close(max(0.0, drain_timeout_s - (time.monotonic() - started)))

    async def close(self, timeout_s: float) -> None:
        """Refuse new connections now, close idle ones, wait, cancel what is left after ``timeout_s`` (whole
        seconds)."""
        if self._serving is None:
            return
        self._server.config.timeout_graceful_shutdown = math.ceil(timeout_s)
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        await serving


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without signal handlers: the process belongs to Ray."""

    def capture_signals(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()


def _bind(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind((host, 0))
    return listener


async def _send_forbidden(send: Send) -> None:
    error = Forbidden("This is a private listener; send requests to the gateway.", code="private_listener")
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": error.body()})
