"""When a gateway whose answer is shared counts as dead."""

from __future__ import annotations

import asyncio
from typing import Any

from deployments.gateway.lookup.shared_stream import SharedStream
from deployments.wire.http1 import Connection
from serve_app.gateways.frames import Kind, frame


class Transport(asyncio.Transport):
    """Keeps nothing, and tells whether it was aborted."""

    is_aborted = False

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def begun() -> tuple[Connection, Transport, SharedStream]:
    """A stream on which any pause is silence, with its first frame read."""
    transport = Transport()
    connection = Connection(1 << 18, lambda _: None)
    connection.connection_made(transport)
    connection.send(b"")
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.data_received(head + chunk(frame(Kind.ACCEPTED)))
    first = await connection.read_some()
    return connection, transport, SharedStream(connection, first, lambda: None, silent_s=0.0)


async def looked() -> None:
    """The stream has looked whether the other gateway is silent."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_client_that_does_not_read_on_makes_no_gateway_dead() -> None:
    connection, transport, stream = await begun()
    connection.data_received(chunk(frame(Kind.DATA, b"said")))
    await looked()
    assert not transport.is_aborted
    assert await stream.next() == (Kind.DATA, b"said")
    stream.close()


async def test_a_gateway_of_which_nothing_comes_is_dead() -> None:
    _, transport, stream = await begun()
    await looked()
    assert transport.is_aborted
    stream.close()
