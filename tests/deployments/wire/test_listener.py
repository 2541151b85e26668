"""The private listener over real HTTP."""

from __future__ import annotations

import asyncio
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deployments.wire.http1 import NoConnection, Origin, request_bytes
from deployments.wire.listener import PrivateListener, listening
from deployments.wire.pool import ConnectionPool
from serve_app.errors import SettingsError
from serve_app.wire.private_address import PrivateAddress


class SlowApp:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.finish = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.started.set()
        await self.finish.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def app() -> SlowApp:
    return SlowApp()


@pytest.fixture
async def listener(app: SlowApp) -> AsyncIterator[PrivateListener]:
    listener = PrivateListener(app, "127.0.0.1")
    listener.start()
    yield listener
    app.finish.set()
    await listener.stop(0.0)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


async def test_http_without_a_handshake_gets_403(
    listener: PrivateListener, http: aiohttp.ClientSession, app: SlowApp
) -> None:
    headers = {"x-promptly-secret": listener.address.secret}  # to know it is to prove it, not to send it
    async with http.post(listener.address.url, headers=headers, json={"a": 1}) as response:
        assert response.status == 403
        assert (await response.json())["error"]["code"] == "private_listener"
    assert not app.started.is_set()


@pytest.mark.parametrize("change", [{"secret": "guess"}, {"url": "http://localhost:{port}"}])
async def test_a_caller_that_proves_nothing_is_refused(
    listener: PrivateListener, app: SlowApp, change: dict[str, str]
) -> None:
    port = listener.address.url.rpartition(":")[2]
    address = replace(listener.address, socket="", **{k: v.format(port=port) for k, v in change.items()})
    with pytest.raises(NoConnection, match="does not know the secret"):
        await _get(address)
    assert not app.started.is_set()


@pytest.mark.parametrize("first", [b"PROMPTLY/1 ", b"PROMPTLY/1 " + b"n" * 32 + b"p" * 32, b"\x00" * 80])
async def test_bytes_of_a_stranger_reach_no_app_and_his_connection_ends(app: SlowApp, first: bytes) -> None:
    listener = PrivateListener(app, "127.0.0.1", handshake_timeout_s=0.1)
    listener.start()
    host, port = listener.address.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(first)
        async with asyncio.timeout(5):
            said = await reader.read(-1)
        assert b"HTTP/1.1 200" not in said
        assert listener.address.secret.encode() not in said
    finally:
        writer.close()
        await listener.stop(0.0)
    assert not app.started.is_set()


async def test_a_caller_on_the_same_node_uses_a_socket_that_only_its_user_reaches(
    listener: PrivateListener, app: SlowApp
) -> None:
    path = Path(listener.address.socket)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    app.finish.set()
    away = replace(listener.address, url="http://127.0.0.1:1")  # nothing listens there
    with pytest.raises(NoConnection, match="does not know the secret"):
        await _get(away)  # the socket answered, for its own address
    assert await _get(listener.address) == "done"


async def test_a_caller_on_another_node_comes_by_tcp(listener: PrivateListener, app: SlowApp) -> None:
    app.finish.set()
    assert await _get(replace(listener.address, socket="/there/is/no/such/socket")) == "done"
    assert await _get(replace(listener.address, socket="")) == "done"


async def test_the_socket_s_folder_goes_with_the_listener(app: SlowApp) -> None:
    listener = PrivateListener(app, "127.0.0.1")
    listener.start()
    folder = Path(listener.address.socket).parent
    assert folder.is_dir()
    await listener.stop(0.0)
    assert not folder.exists()


async def test_a_temporary_folder_of_a_long_name_is_not_used(
    app: SlowApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    listener = PrivateListener(app, "127.0.0.1")
    listener.start()
    app.finish.set()
    try:
        assert listener.address.socket.startswith("/tmp/")
        assert list(deep.iterdir()) == []
        assert await _get(listener.address) == "done"
    finally:
        await listener.stop(0.0)


async def test_two_listeners_have_secrets_and_ports_of_their_own(listener: PrivateListener) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None: ...

    other = PrivateListener(nothing, "127.0.0.1")
    other.start()
    try:
        assert other.address.secret != listener.address.secret
        assert other.address.url != listener.address.url
        assert other.address.socket != listener.address.socket
    finally:
        await other.stop(0.0)


def free_ports(count: int) -> range:
    """Ports in a row on which nothing listens now."""
    for first in range(25000, 29000, count):
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
            return range(first, first + count)
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
    raise AssertionError("no free ports")


def port_of(listener: PrivateListener) -> int:
    return int(listener.address.url.rpartition(":")[2])


async def test_each_listener_takes_a_free_port_of_the_range_and_none_is_left_out(app: SlowApp) -> None:
    ports = free_ports(3)
    listeners = [PrivateListener(app, "127.0.0.1", ports=ports) for _ in ports]
    for each in listeners:
        each.start()
    try:
        assert sorted(map(port_of, listeners)) == list(ports)
        app.finish.set()
        for each in listeners:
            assert await _get(replace(each.address, socket="")) == "done"
    finally:
        for each in listeners:
            await each.stop(0.0)


async def test_a_range_that_is_used_up_says_which_setting_and_where(app: SlowApp) -> None:
    ports = free_ports(2)
    taken = [listening("127.0.0.1", ports) for _ in ports]
    try:
        words = f"network.min_port.*network.max_port.*{ports[0]} to {ports[-1]} are in use at 127.0.0.1"
        with pytest.raises(SettingsError, match=words):
            PrivateListener(app, "127.0.0.1", ports=ports)
        with listening("127.0.0.2", ports) as other:  # another node
            assert other.getsockname()[0] == "127.0.0.2"
    finally:
        for each in taken:
            each.close()


async def test_a_port_returns_as_soon_as_its_listener_has_closed(app: SlowApp) -> None:
    ports = free_ports(1)
    app.finish.set()
    for _ in range(3):  # also where the listener closed connections that were open
        listener = PrivateListener(app, listening("127.0.0.1", ports))
        listener.start()
        pool = ConnectionPool(connect_timeout_s=5, idle_s=60, read_ahead=1 << 16)
        origin = Origin.behind(replace(listener.address, socket=""))
        try:
            await pool.ask(origin, request_bytes(origin, "GET", "/", {}, b""))
            await listener.stop(0.0)
        finally:
            pool.close()


def test_an_address_that_is_not_this_node_s_is_no_full_range() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        listening("192.0.2.1", range(25000, 25002))


async def test_a_stop_lets_a_running_answer_finish(listener: PrivateListener, app: SlowApp) -> None:
    request = asyncio.create_task(_get(listener.address))
    await asyncio.wait_for(app.started.wait(), 5)
    assert listener.active == 1
    stopping = asyncio.create_task(listener.stop(10.0))
    await asyncio.sleep(0)
    assert not stopping.done()
    app.finish.set()
    assert await request == "done"
    await asyncio.wait_for(stopping, 5)
    with pytest.raises(NoConnection):
        await _get(listener.address)


async def test_a_stop_does_not_wait_beyond_its_deadline(listener: PrivateListener, app: SlowApp) -> None:
    request = asyncio.create_task(_get(listener.address))
    await asyncio.wait_for(app.started.wait(), 5)
    await asyncio.wait_for(listener.stop(0.0), 5)
    assert await request == "Internal Server Error"  # uvicorn's word for a cancelled answer
    assert listener.active == 0


async def _get(address: PrivateAddress) -> str:
    pool = ConnectionPool(connect_timeout_s=5, idle_s=60, read_ahead=1 << 16)
    origin = Origin.behind(address)
    try:
        _, body = await pool.ask(origin, request_bytes(origin, "GET", "/", {}, b""))
    finally:
        pool.close()
    return body.decode()
