"""An app whose prompts are prefilled elsewhere first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from deployments.engine.prefill.middleware import RemotePrefill
from serve_app.openai.requests import Endpoint

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
FOUND = {"remote_engine_id": "e", "remote_block_ids": [[1, 2]]}


class App:
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.after: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        self.after.append(await receive())

    @property
    def request(self) -> Any:
        (body,) = self.bodies
        return json.loads(body)

    @property
    def length(self) -> int:
        (scope,) = self.scopes
        (length,) = [value for name, value in scope["headers"] if name == b"content-length"]
        return int(length)


class Elsewhere:
    """An engine that prefills, and what it was asked."""

    def __init__(self, found: dict[str, Any] | None = FOUND) -> None:
        self.found = found
        self.asked: list[tuple[Endpoint, dict[str, Any]]] = []

    async def __call__(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        self.asked.append((endpoint, body))
        return self.found


async def ask(
    body: bytes,
    elsewhere: Elsewhere,
    *,
    path: str = Endpoint.CHAT.value,
    method: str = "POST",
    parts: int = 2,
) -> App:
    app = App()
    size = -(-len(body) // 2) or 1
    pieces = [body[start : start + size] for start in range(0, max(len(body), 1), size)]
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": position < len(pieces) - 1}
        for position, piece in enumerate(pieces)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError("nothing is answered by what stands before the app")

    headers = [(b"content-length", str(len(body)).encode()), (b"x-request-id", b"r")]
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": headers}
    await RemotePrefill(app, elsewhere)(scope, receive, send)
    return app


async def test_the_app_is_told_where_the_kv_cache_lies() -> None:
    elsewhere = Elsewhere()
    app = await ask(json.dumps(CHAT).encode(), elsewhere)
    assert elsewhere.asked == [(Endpoint.CHAT, CHAT)]
    assert app.request == CHAT | {"kv_transfer_params": FOUND}
    assert app.length == len(app.bodies[0])
    assert app.after == [{"type": "http.disconnect"}]


async def test_without_an_engine_elsewhere_the_request_is_what_it_was() -> None:
    app = await ask(json.dumps(CHAT).encode(), Elsewhere(None))
    assert app.request == CHAT


@pytest.mark.parametrize("path", [Endpoint.CHAT.value, "/v1/responses", "/tokenize"])
async def test_a_client_cannot_name_memory_of_an_engine(path: str) -> None:
    body = json.dumps(CHAT | {"kv_transfer_params": {"remote_host": "10.0.0.1"}}).encode()
    escaped = body.replace(b"kv_transfer", b"kv\\u005ftransfer")
    for each in (body, escaped):
        assert (await ask(each, Elsewhere(None), path=path)).request == CHAT


async def test_only_what_generates_is_prefilled_elsewhere() -> None:
    elsewhere = Elsewhere()
    await ask(b'{"model": "m", "prompt": "hi"}', elsewhere, path="/tokenize")
    await ask(json.dumps(CHAT | {"n": 2}).encode(), elsewhere)
    await ask(b"", elsewhere, path="/health", method="GET")
    assert elsewhere.asked == []


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"text"', b"\xff", b"[" * 100_000])
async def test_what_is_no_request_is_left_to_the_app(body: bytes) -> None:
    elsewhere = Elsewhere()
    app = await ask(body, elsewhere)
    assert app.bodies == [body]
    assert elsewhere.asked == []


async def test_a_client_that_leaves_before_its_body_is_read_asks_for_nothing() -> None:
    app, elsewhere = App(), Elsewhere()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError

    scope: Scope = {"type": "http", "method": "POST", "path": Endpoint.CHAT.value, "headers": []}
    await RemotePrefill(app, elsewhere)(scope, receive, send)
    assert (app.scopes, elsewhere.asked) == ([], [])


async def test_the_tenants_salt_reaches_both_engines() -> None:
    elsewhere = Elsewhere()
    app = await ask(json.dumps({**CHAT, "cache_salt": "s"}).encode(), elsewhere)
    [(_, asked)] = elsewhere.asked
    assert (asked["cache_salt"], app.request["cache_salt"]) == ("s", "s")
