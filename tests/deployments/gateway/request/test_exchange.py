"""One HTTP request, on plain ASGI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.gateway.request.connected import ClientGone
from deployments.gateway.request.exchange import EVENT_STREAM, Exchange
from serve_app.errors import UpstreamFailed

ERROR = UpstreamFailed("it broke", code="upstream_failed")
ERROR_EVENT = b"data: " + ERROR.body() + b"\n\n"


class Client:
    """The other end: gives body parts, leaves when told to, keeps what it is sent."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self.gone = asyncio.Event()
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    def exchange(self, **headers: str) -> Exchange:
        raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/p/v1/x", "root_path": "/p", "headers": raw}
        return Exchange(scope, self.receive, self.send)


class EndlessWork:
    """Goes on until it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cleaned_up = asyncio.Event()

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaned_up.set()


async def test_the_path_is_the_one_below_the_route_prefix() -> None:
    assert Client().exchange().path == "/v1/x"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "ü", "<script>"])
async def test_a_request_id_that_headers_cannot_carry_is_replaced(given: str) -> None:
    request_id = Client().exchange(x_request_id=given).request_id
    assert request_id != given
    assert len(request_id) == 32


async def test_a_usable_request_id_is_kept() -> None:
    assert Client().exchange(x_request_id="abc-1.2:3").request_id == "abc-1.2:3"


async def test_a_failure_before_the_start_is_a_response() -> None:
    client = Client()
    await client.exchange().fail(ERROR)
    assert client.sent[0]["status"] == 502
    assert client.body == ERROR.body()
    assert client.sent[-1]["more_body"] is False


@pytest.mark.parametrize(
    ("written", "separator"), [(b"data: 1\n\n", b""), (b'data: {"cu', b"\n\n"), (b"data: 1\n", b"\n\n")]
)
async def test_a_failure_in_a_stream_is_its_last_event(written: bytes, separator: bytes) -> None:
    client = Client()
    exchange = client.exchange()
    await exchange.start(200, EVENT_STREAM)
    await exchange.write(written)
    await exchange.fail(ERROR)
    assert client.body == written + separator + ERROR_EVENT
    assert client.sent[-1]["more_body"] is False


@pytest.mark.parametrize(("content_type", "held"), [(EVENT_STREAM, b"no"), ("application/json", None)])
async def test_a_reverse_proxy_must_not_hold_tokens_back(content_type: str, held: bytes | None) -> None:
    client = Client()
    await client.exchange().start(200, content_type)
    assert dict(client.sent[0]["headers"]).get(b"x-accel-buffering") == held


async def test_a_failure_inside_a_counted_body_adds_nothing_to_it() -> None:
    client = Client()
    exchange = client.exchange()
    await exchange.start(200, "application/json", {"content-length": "10"})
    await exchange.fail(ERROR)
    assert client.body == b""


async def test_work_ends_with_its_result_while_the_client_stays() -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    await Client().exchange().run_while_connected(work())
    assert done.is_set()


async def test_work_that_fails_says_so() -> None:
    async def work() -> None:
        raise ERROR

    with pytest.raises(UpstreamFailed):
        await Client().exchange().run_while_connected(work())


async def test_work_is_cancelled_and_over_when_the_client_leaves() -> None:
    client = Client()
    endless = EndlessWork()
    running = asyncio.create_task(client.exchange().run_while_connected(endless.run()))
    await endless.started.wait()
    client.gone.set()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(running, 5)
    assert endless.cleaned_up.is_set()


async def test_work_is_over_when_the_server_cancels_the_request() -> None:
    endless = EndlessWork()
    running = asyncio.create_task(Client().exchange().run_while_connected(endless.run()))
    await endless.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert endless.cleaned_up.is_set()
