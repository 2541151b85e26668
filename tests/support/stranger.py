"""A server that listens where a replica listened, and is not that replica."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from serve_app.wire.handshake import REPLY_BYTES

Greets = Callable[[bytes], bytes]
"""What is answered to the first bytes of a connection."""


def silent(_: bytes) -> bytes:
    return b""


def at_random(_: bytes) -> bytes:
    return os.urandom(REPLY_BYTES)


def mirrored(received: bytes) -> bytes:
    return (received * REPLY_BYTES)[:REPLY_BYTES]


def as_http(_: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Stranger:
    """Keeps all that it is sent; answers what comes after its greeting with ``then``."""

    def __init__(self, greets: Greets, then: bytes) -> None:
        self._greets = greets
        self._then = then
        self.received = b""
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answer = self._greets
        try:
            while data := await reader.read(1 << 16):
                self.received += data
                writer.write(answer(data))
                answer = lambda _: self._then  # noqa: E731
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def stranger(greets: Greets, then: bytes = b"") -> AsyncIterator[Stranger]:
    made = Stranger(greets, then)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
