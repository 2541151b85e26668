"""Direct calls between replicas, over real sockets."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.collector import collecting
from support.graph import eventually
from support.handles import LocalHandle
from support.stranger import Greets, as_http, at_random, mirrored, silent, stranger

from deployments.platform.telemetry import TRACEPARENT, call_tracer
from deployments.wire import direct_calls
from deployments.wire.direct_calls import DirectCallFailed, DirectCalls, DirectClient
from serve_app.wire.calls import Interface, Method, WireError
from serve_app.wire.handshake import HELLO_BYTES
from serve_app.wire.private_address import PrivateAddress

HOST = "127.0.0.1"
INTERFACE: Interface = {"double": Method(tuple[int], int), "fail": Method(tuple[()], None)}


class Doubler:
    def __init__(self) -> None:
        self.calls = 0

    async def double(self, number: int) -> int:
        self.calls += 1
        return 2 * number

    async def fail(self) -> None:
        raise ValueError("broken on purpose")


@asynccontextmanager
async def served(target: Any) -> AsyncIterator[DirectCalls]:
    calls = DirectCalls(INTERFACE, {"double": target.double, "fail": target.fail}, HOST)
    try:
        yield calls
    finally:
        await calls.stop()


class Replicas(LocalHandle):
    """A handle that knows its replicas' addresses, as Serve's does."""

    def __init__(self, target: Any, addresses: list[PrivateAddress]) -> None:
        super().__init__(target)
        self.addresses = addresses

    def broadcast(self, method: str) -> Replicas:
        assert method == direct_calls.ADDRESS_METHOD
        return self

    async def _fetch_replica_results_async(self) -> list[Answer]:
        return [Answer(address) for address in self.addresses]


class Answer:
    def __init__(self, address: PrivateAddress) -> None:
        self._address = address

    async def get_async(self) -> PrivateAddress:
        return self._address


@asynccontextmanager
async def client_of(handle: Any) -> AsyncIterator[DirectClient]:
    client = DirectClient(handle, INTERFACE)
    try:
        await client.refresh()
        yield client
    finally:
        await client.close()


async def test_a_call_goes_to_the_listener_and_not_through_the_handle() -> None:
    target = Doubler()
    async with served(target) as calls:
        handle = Replicas(target, [calls.address])
        async with client_of(handle) as client:
            assert await client.call("double", 21) == 42
        assert target.calls == 1
        assert handle.begun["double"] == 0


async def test_without_an_address_the_handle_takes_the_call() -> None:
    handle = LocalHandle(Doubler())  # it has no broadcast: no address is known
    async with client_of(handle) as client:
        assert await client.call("double", 21) == 42
    assert handle.begun["double"] == 1


async def test_a_replica_that_is_gone_costs_one_try_and_the_handle_answers() -> None:
    target = Doubler()
    async with served(target) as calls:
        handle = Replicas(target, [calls.address])
        async with client_of(handle) as client:
            await client.call("double", 1)
            await calls.stop()
            handle.addresses = []
            assert await client.call("double", 21) == 42
            assert await client.call("double", 21) == 42
    assert handle.begun["double"] == 2


async def test_a_replica_that_replaced_another_is_found_again() -> None:
    target = Doubler()
    async with served(target) as old, served(target) as new:
        handle = Replicas(target, [old.address])
        async with client_of(handle) as client:
            await old.stop()
            handle.addresses = [new.address]
            assert await client.call("double", 1) == 2  # by the handle, and the search begins
            assert handle.begun["double"] == 1
            assert await eventually(lambda: _was_direct(client, handle), within_s=10)


async def _was_direct(client: DirectClient, handle: LocalHandle) -> bool:
    before = handle.begun["double"]
    await client.call("double", 1)
    return handle.begun["double"] == before


async def test_the_other_sides_error_arrives_with_its_type_and_text() -> None:
    target = Doubler()
    async with served(target) as calls, client_of(Replicas(target, [calls.address])) as client:
        with pytest.raises(DirectCallFailed, match="ValueError: broken on purpose"):
            await client.call("fail")
        assert await client.call("double", 1) == 2


async def test_the_replica_with_the_fewest_calls_is_asked() -> None:
    held, free = Held(), Doubler()
    async with (
        served(held) as one,
        served(free) as other,
        client_of(Replicas(free, [one.address, other.address])) as client,
    ):
        waiting = asyncio.create_task(client.call("double", 1))
        await held.begun.wait()
        assert [await client.call("double", number) for number in range(3)] == [0, 2, 4]
        held.end.set()
        assert await waiting == 2
    assert free.calls == 3


class Held(Doubler):
    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.end = asyncio.Event()

    async def double(self, number: int) -> int:
        self.begun.set()
        await self.end.wait()
        return await super().double(number)


async def test_nothing_is_read_without_the_secret() -> None:
    target = Doubler()
    async with (
        served(target) as calls,
        aiohttp.ClientSession() as http,
        http.post(f"{calls.address.url}/double", data=b"\x91\x01") as response,
    ):
        assert response.status == 403
    assert target.calls == 0


async def test_a_method_that_is_not_declared_is_not_called() -> None:
    target = Doubler()
    async with served(target) as calls:
        handle = Replicas(target, [calls.address])
        async with client_of(handle) as client:
            with pytest.raises(WireError, match="no method '__init__'"):
                await client.call("__init__")


async def test_arguments_of_another_type_are_refused_and_the_handle_answers() -> None:
    target = Doubler()
    async with served(target) as calls:
        handle = Replicas(target, [calls.address])
        async with client_of(handle) as client:
            assert await client.call("double", "ab") == "abab"
    assert handle.begun["double"] == 1


class Evil:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return RAN.append, ("code ran",)


RAN: list[str] = []


@pytest.mark.parametrize("greets", [silent, at_random, mirrored, as_http])
async def test_a_stranger_on_a_freed_port_learns_nothing_and_runs_nothing(greets: Greets) -> None:
    target = Doubler()
    code = pickle.dumps(Evil())
    pickled = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(code) + code
    async with stranger(greets, pickled) as fake:
        address = PrivateAddress(fake.url, "the-secret-of-this-start")
        async with client_of(Replicas(target, [address])) as client:
            assert await client.call("double", 21) == 42  # by the handle
    assert fake.connections == 1
    assert address.secret.encode() not in fake.received
    assert b"double" not in fake.received
    assert len(fake.received) <= HELLO_BYTES
    assert RAN == []


def test_the_secret_is_not_shown() -> None:
    assert "hidden" not in repr(PrivateAddress("http://127.0.0.1:1", "hidden"))


async def test_a_callee_whose_process_ends_leaves_no_socket() -> None:
    target = Doubler()
    async with served(target) as calls:
        folder = Path(calls.address.socket).parent
        assert folder.is_dir()
        calls.forget()
        assert not folder.exists()
        async with client_of(Replicas(target, [calls.address])) as client:
            assert await client.call("double", 1) == 2


async def test_a_call_of_a_traced_request_has_a_span_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        target = Doubler()
        methods = {"double": target.double, "fail": target.fail}
        calls = DirectCalls(INTERFACE, methods, HOST, call_tracer("doubler"))
        async with client_of(Replicas(target, [calls.address])) as client:
            await client.call("double", 1)  # of no request
            token = TRACEPARENT.set(f"00-{trace}-{parent}-01")
            await client.call("double", 21)
            with pytest.raises(DirectCallFailed):
                await client.call("fail")
            TRACEPARENT.set(f"00-{'1' * 32}-{parent}-00")  # left out by the gateway's sampling
            await client.call("double", 2)
            TRACEPARENT.reset(token)
        await calls.stop()
    assert {span.trace_id.hex() for span in collector.spans} == {trace}
    assert {span.parent_span_id.hex() for span in collector.spans} == {parent}
    doubled, failed = collector.spans
    assert (doubled.name, doubled.status.code) == ("doubler.double", 0)
    assert (failed.name, failed.status.code) == ("doubler.fail", 2)
    assert {each.key: each.value.string_value for each in failed.attributes} == {"error.type": "ValueError"}
    assert "broken on purpose" not in str(failed)


class Patient:
    """Calls that end when they are let go."""

    def __init__(self) -> None:
        self.begun, self.free = asyncio.Event(), asyncio.Event()
        self.ended = asyncio.get_running_loop().create_future()

    async def double(self, number: int) -> int:
        self.begun.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.ended.set_result("cancelled")
            raise
        self.ended.set_result("answered")
        return 2 * number

    async def fail(self) -> None:
        raise ValueError("broken on purpose")


@pytest.mark.parametrize("abandoned", [True, False])
async def test_a_call_whose_caller_left_ends_only_where_that_is_asked_for(abandoned: bool) -> None:
    """A write goes on: who sent it may have seen half of it."""
    target = Patient()
    methods = {"double": target.double, "fail": target.fail}
    calls = DirectCalls(INTERFACE, methods, HOST, abandoned=["double"] if abandoned else [])
    try:
        async with client_of(Replicas(target, [calls.address])) as client, asyncio.timeout(30):
            asking = asyncio.ensure_future(client.call("double", 4))
            await target.begun.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if not abandoned:
                target.free.set()
            assert await target.ended == ("cancelled" if abandoned else "answered")
            if abandoned:
                target.free.set()
                target.ended = asyncio.get_running_loop().create_future()
                assert await client.call("double", 4) == 8
    finally:
        await calls.stop()
