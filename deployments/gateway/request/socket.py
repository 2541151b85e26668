"""A client's WebSocket. Until it is accepted it looks like a GET, so that every check of a request holds for
it too, and a refusal is an HTTP response with its own status."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send

from deployments.gateway.request.connected import ClientGone
from deployments.gateway.request.exchange import Exchange
from serve_app.realtime.closing import INTERNAL
from serve_app.request.auth import Identity

RESPONSE = "websocket.http.response"
"""The ASGI extension for refusals."""

OVERHEAD = 128
"""Bytes of memory that a message takes beside its own."""


class ClientSocket:
    """``exchange`` is the GET that it began as."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.subprotocols: tuple[str, ...] = tuple(scope.get("subprotocols", ()))
        self._receive = receive
        self._send = send
        self._refuses = RESPONSE in scope.get("extensions", {})
        self._is_open = self._has_connected = False
        self._ahead: deque[str | bytes] = deque()
        """Messages that were read before they were asked for."""
        self.exchange = Exchange({**scope, "type": "http", "method": "GET"}, self._as_body, self._as_response)
        self.exchange.socket = self
        self.still_allowed: Callable[[], Identity] = lambda: self.exchange.identity
        """Who it is by what is known of the key now; raises Unauthorized or Forbidden. The gate sets it."""

    async def _as_body(self) -> Message:
        """What the GET reads: there is no body; what comes first says that the client waits."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            return {"type": "http.disconnect"}
        self._has_connected = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _as_response(self, message: Message) -> None:
        if self._refuses:
            await self._send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await self._send({"type": "websocket.close", "code": INTERNAL})

    async def accept(self, subprotocol: str | None, headers: dict[str, str]) -> None:
        """Raises: ClientGone."""
        if not self._has_connected and (await self._receive())["type"] != "websocket.connect":
            raise ClientGone
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._put({"type": "websocket.accept", "subprotocol": subprotocol, "headers": raw})
        self._is_open = True
        self.exchange.switched()

    async def receive(self) -> str | bytes:
        """The next message. Cancelling it loses none. Raises: ClientGone."""
        return self._ahead.popleft() if self._ahead else await self._read()

    async def read_ahead(self, size: int) -> None:
        """Notice a client that leaves: read until about ``size`` bytes wait for ``receive``. Cancelling it
        loses none. Raises: ClientGone."""
        while size > 0:
            message = await self._read()
            self._ahead.append(message)
            size -= len(message) + OVERHEAD
            await asyncio.sleep(0)

    async def _read(self) -> str | bytes:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_open = False
            raise ClientGone
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        return data if text is None else text

    async def send(self, message: str) -> None:
        """Waits while the client does not read. Raises: ClientGone."""
        await self._put({"type": "websocket.send", "text": message})

    async def close(self, code: int, reason: str = "") -> None:
        """Nothing if the client has left."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(ClientGone):
                await self._put({"type": "websocket.close", "code": code, "reason": reason})

    async def _put(self, message: Message) -> None:
        try:  # uvicorn raises an OSError of its own for a client that left
            await self._send(message)
        except OSError as error:
            self._is_open = False
            raise ClientGone from error
