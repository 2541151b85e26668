"""The private listener over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from deployments.listener import SECRET_HEADER, PrivateListener


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


@pytest.mark.parametrize("given", [None, "", "guess", "SECRET", "secret "])
async def test_anything_without_the_secret_gets_403(
    listener: PrivateListener, http: aiohttp.ClientSession, app: SlowApp, given: str | None
) -> None:
    wanted = {"SECRET": listener.secret.upper(), "secret ": listener.secret[:-1]}
    headers = {} if given is None else {SECRET_HEADER: wanted.get(given, given)}
    async with http.get(listener.url, headers=headers) as response:
        assert response.status == 403
    assert not app.started.is_set()


async def test_two_listeners_have_secrets_and_ports_of_their_own(listener: PrivateListener) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None: ...

    other = PrivateListener(nothing, "127.0.0.1")
    other.start()
    try:
        assert other.secret != listener.secret
        assert other.url != listener.url
    finally:
        await other.stop(0.0)


async def test_a_stop_lets_a_running_answer_finish(
    listener: PrivateListener, http: aiohttp.ClientSession, app: SlowApp
) -> None:
    request = asyncio.create_task(_get(http, listener))
    await asyncio.wait_for(app.started.wait(), 5)
    assert listener.active == 1
    stopping = asyncio.create_task(listener.stop(10.0))
    await asyncio.sleep(0)
    assert not stopping.done()
    app.finish.set()
    assert await request == "done"
    await asyncio.wait_for(stopping, 5)
    with pytest.raises(aiohttp.ClientConnectorError):
        await _get(http, listener)


async def test_a_stop_does_not_wait_beyond_its_deadline(
    listener: PrivateListener, http: aiohttp.ClientSession, app: SlowApp
) -> None:
    request = asyncio.create_task(_get(http, listener))
    await asyncio.wait_for(app.started.wait(), 5)
    await asyncio.wait_for(listener.stop(0.0), 5)
    assert await request == "Internal Server Error"  # uvicorn's word for a cancelled answer
    assert listener.active == 0


async def _get(http: aiohttp.ClientSession, listener: PrivateListener) -> str:
    async with http.get(listener.url, headers={SECRET_HEADER: listener.secret}) as response:
        return await response.text()
