"""The handshake of a WebSocket to a member: who may be slow, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import serve

from deployments.wire.upstream import ConnectionBroken, ConnectionRefused
from deployments.wire.websocket import MemberSocket, open_socket
from serve_app.errors import UpstreamTimeout
from serve_app.fleet import EngineReport, EngineState


async def opened(port: int, answer_timeout_s: float = 10.0, **more: Any) -> MemberSocket:
    report = EngineReport("e0", "m", f"http://127.0.0.1:{port}", {}, EngineState.READY, **more)
    return await open_socket(
        report, "/v1/realtime", {}, max_message_bytes=1 << 20, answer_timeout_s=answer_timeout_s
    )


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """The port of a server that answers every request with this; with nothing, it never answers. It ends
    once all clients have left."""
    left = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left.append(gone := asyncio.Event())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        async with asyncio.timeout(10):
            for each in left:
                await each.wait()


async def test_a_member_that_is_reached_and_does_not_answer_is_slow_and_not_gone() -> None:
    async with answering(b"") as port:
        with pytest.raises(UpstreamTimeout) as slow:
            await opened(port, answer_timeout_s=0.1)
    assert slow.value.status == 504


async def test_a_port_that_nothing_listens_on_refuses() -> None:
    async with answering(b"") as port:
        pass
    with pytest.raises(ConnectionRefused):
        await opened(port)


async def test_a_redirect_is_not_followed() -> None:
    async with answering(
        b"HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    ) as port:
        with pytest.raises(ConnectionBroken):
            await opened(port)


async def test_an_open_one_carries_messages() -> None:
    async with serve(lambda socket: socket.send("hello"), "127.0.0.1", 0) as server:
        socket = await opened(next(iter(server.sockets)).getsockname()[1])
        assert await socket.receive() == "hello"
        await socket.close()


class Mute:
    """A server that takes connections and says nothing."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.read(1):
                self.asked.set()
            while await reader.read(4096):
                pass
        except ConnectionResetError:
            pass  # it was cut, which is as good
        finally:
            writer.close()
            self.left.set()


@pytest.mark.parametrize("secret", ["", "x" * 43], ids=["in the upgrade", "in the proof"])
async def test_a_handshake_that_is_given_up_closes_its_connection(secret: str) -> None:
    server = Mute()
    async with await asyncio.start_server(server.take, "127.0.0.1", 0) as listening, asyncio.timeout(10):
        opening = asyncio.ensure_future(opened(listening.sockets[0].getsockname()[1], secret=secret))
        await server.asked.wait()
        opening.cancel()
        [cancelled] = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        await server.left.wait()


async def test_an_address_that_the_library_refuses_leaves_no_connection_behind() -> None:
    server = Mute()
    async with await asyncio.start_server(server.take, "127.0.0.1", 0) as listening, asyncio.timeout(10):
        with pytest.raises(ConnectionBroken) as held:
            await opened(listening.sockets[0].getsockname()[1], api_prefix="/v1#fragment")
        await server.left.wait()  # while the error, and all that it refers to, is still there
    assert held.value.code == "upstream_failed"
