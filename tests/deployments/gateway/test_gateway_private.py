"""A gateway and its own engines: a stranger where an engine listened is told neither secret nor prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from support.gateway import MODEL, Running, serving
from support.graph import eventually
from support.stranger import Greets, as_http, at_random, mirrored, silent, stranger

from deployments.gateway.runtime import GatewayRuntime
from deployments.wire.listener import PrivateListener, read_body
from serve_app.fleet import EngineReport, EngineState
from serve_app.settings import parse_args
from serve_app.wire.handshake import HELLO_BYTES
from serve_app.wire.private_address import PrivateAddress

PROMPT = "what only the engine may read"
SECRET = "the-secret-of-this-start"


class Handle:
    """A model's deployment, whose replicas are at these addresses."""

    def __init__(self, addresses: Sequence[PrivateAddress]) -> None:
        self._addresses = addresses

    def broadcast(self, method: str, *_: Any) -> Handle:
        return self

    async def _fetch_replica_results_async(self) -> list[Report]:
        return [Report(f"r{n}", address) for n, address in enumerate(self._addresses)]


class Report:
    def __init__(self, name: str, address: PrivateAddress) -> None:
        self._name = name
        self._address = address

    async def get_async(self) -> EngineReport:
        return EngineReport(
            replica_id=self._name,
            model=MODEL,
            url=self._address.url,
            headers={},
            secret=self._address.secret,
            socket=self._address.socket,
            state=EngineState.READY,
            capacity=8,
            gives_token_ids=False,
        )


class Engine:
    """Says that it was asked, and keeps the headers of the request."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(await read_body(receive) or b"")
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        message = {"role": "assistant", "content": "yes"}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL}
        body = json.dumps(answer | {"choices": [choice], "usage": usage}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def in_front_of(*addresses: PrivateAddress) -> AsyncIterator[Running]:
    model = {"id": MODEL, "source": "owner/model", "engine": {"accelerator": "cpu"}}
    settings = parse_args({"models": [model], "gateway": {"routing": "round_robin"}}, source="test")
    handle: Any = Handle(addresses)
    async with AsyncExitStack() as stack:
        runtime = GatewayRuntime(settings, None, {MODEL: handle})
        stack.push_async_callback(runtime.close)
        url = await stack.enter_async_context(serving(runtime.app))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        running = Running(http, (), url)

        async def is_ready() -> bool:
            async with http.get("/ready") as response:
                return response.status == 200

        assert await eventually(is_ready, within_s=5)
        yield running


@asynccontextmanager
async def listening(engine: Engine) -> AsyncIterator[PrivateAddress]:
    listener = PrivateListener(engine, "127.0.0.1")
    listener.start()
    try:
        yield listener.address
    finally:
        await listener.stop(0.0)


@pytest.mark.parametrize("greets", [silent, at_random, mirrored, as_http])
async def test_a_stranger_is_told_nothing_and_the_client_gets_an_error(greets: Greets) -> None:
    async with stranger(greets) as fake, in_front_of(PrivateAddress(fake.url, SECRET)) as running:
        answered = await running.post(PROMPT)
        assert answered.status in (502, 503)
        assert SECRET not in answered.body.decode()
    assert fake.connections >= 1
    assert SECRET.encode() not in fake.received
    assert PROMPT.encode() not in fake.received
    assert len(fake.received) <= HELLO_BYTES * fake.connections


async def test_requests_go_to_the_engine_that_proves_itself() -> None:
    engine = Engine()
    async with (
        listening(engine) as address,
        stranger(at_random) as fake,
        in_front_of(PrivateAddress(fake.url, SECRET), address) as running,
    ):
        for _ in range(4):
            assert (await running.post(PROMPT)).text == "yes"
    assert len([body for body in engine.bodies if PROMPT.encode() in body]) == 4
    assert not any(address.secret in str(headers) for headers in engine.headers)
    assert PROMPT.encode() not in fake.received


async def test_a_connection_of_before_does_not_reach_the_listener_of_another_secret() -> None:
    """The port is the same, the replica another one: who has learned only the old secret is refused."""
    engine = Engine()
    async with listening(engine) as address:
        old = PrivateAddress(address.url, SECRET, address.socket)
        async with in_front_of(old) as running:
            assert (await running.post(PROMPT)).status in (502, 503)
    assert engine.bodies == []  # not even a look at its health
