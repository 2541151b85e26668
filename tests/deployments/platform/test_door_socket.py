"""The Unix socket between HAProxy and a gateway, with a real uvicorn and a real HAProxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from support.front_door import REPLICA, door
from support.graph import eventually

from deployments.platform.door_socket import door_folder, doors, open_doors
from serve_app.wire.private_address import MAX_SOCKET_PATH


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says who asks, as far as the server knows."""
    said = repr(scope["client"]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": said})


@asynccontextmanager
async def serving(
    folder: Path | None, *, named: Callable[[], str | None] = lambda: REPLICA
) -> AsyncIterator[tuple[uvicorn.Server, str]]:
    """A server of a class of its own, whose instances open a door; its URL by TCP."""

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return nullcontext()

    open_doors(Server, named=named, folder=lambda: folder)
    open_doors(Server, named=lambda: "twice", folder=lambda: folder)
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server = Server(uvicorn.Config(app, lifespan="off", log_config=None))
        task = asyncio.ensure_future(server.serve(sockets=[listener]))

        async def started() -> bool:
            return server.started

        assert await eventually(started, within_s=5)
        try:
            yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def asked(path: Path) -> str:
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as http, http.get("http://gateway/") as response:
        return await response.text()


async def test_a_replica_listens_on_a_socket_of_its_name_and_removes_it_at_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert doors(lambda: tmp_path) == {REPLICA: tmp_path / f"{REPLICA}.sock"}
        assert await asked(tmp_path / f"{REPLICA}.sock") == "None", "it has no address"
    assert doors(lambda: tmp_path) == {}


@pytest.mark.parametrize("named", [lambda: None, lambda: "x" * MAX_SOCKET_PATH])
async def test_what_is_no_replica_or_has_too_long_a_path_listens_by_tcp_alone(
    named: Callable[[], str | None], tmp_path: Path
) -> None:
    async with serving(tmp_path, named=named) as (_, url), aiohttp.ClientSession() as http:
        async with http.get(url) as response:
            assert response.status == 200
        assert doors(lambda: tmp_path) == {}


async def test_without_a_folder_it_listens_by_tcp_alone() -> None:
    async with serving(None) as (_, url), aiohttp.ClientSession() as http, http.get(url) as response:
        assert response.status == 200
    assert doors(lambda: None) == {}


async def test_sockets_of_killed_replicas_are_swept_and_those_of_others_stay(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "killed.sock"))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other.sock"))
        other.listen(1)
        async with serving(tmp_path):
            assert set(doors(lambda: tmp_path)) == {"other", REPLICA}


async def test_haproxy_reaches_the_gateway_by_its_socket(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (_, url),
        door(url, gateways=doors(lambda: tmp_path)) as front,
        aiohttp.ClientSession() as http,
    ):

        async def through() -> bool:
            async with http.get(front.url) as response:
                return response.status == 200 and await response.text() == "None"

        assert await eventually(through, within_s=5)


def test_a_folder_that_others_may_enter_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = door_folder()
    assert ours is not None
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.chmod(0o755)
    assert door_folder() is None
    ours.rmdir()
    ours.symlink_to(tmp_path)
    assert door_folder() is None
    ours.unlink()
    ours.write_bytes(b"")
    assert door_folder() is None


@pytest.mark.parametrize("name", ["a b", "ö", 'a"b'])
def test_a_path_that_needs_quotes_in_haproxys_config_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert door_folder() is None
