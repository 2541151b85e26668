"""The middleware in front of Serve's own handling of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.platform.ingress_middleware import middlewares


async def send_through(
    headers: list[tuple[bytes, bytes]], path: str = "/v1/chat/completions"
) -> tuple[int, bytes]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"reached"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    (middleware,) = middlewares()
    await middleware.cls(app)({"type": "http", "path": path, "headers": headers}, None, send)  # type: ignore[arg-type]
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize("value", [b"plain", "größer".encode(), b""])
async def test_utf8_passes(value: bytes) -> None:
    assert await send_through([(b"x-request-id", value)]) == (200, b"reached")


async def test_other_bytes_are_a_400_that_names_the_header() -> None:
    status, body = await send_through([(b"host", b"h"), (b"x-request-id", b"\xff")])
    assert status == 400
    assert b'"param":"x-request-id"' in body


async def test_the_error_is_in_the_words_of_the_path_s_clients() -> None:
    status, body = await send_through([(b"x-request-id", b"\xff")], "/v1/messages")
    assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")
    assert json.loads(body)["type"] == "error"


@pytest.mark.parametrize("given", [[], [(b"x-request-disconnect-disabled", b"?0")]])
async def test_serve_leaves_the_watch_over_the_client_to_the_gateway(
    given: list[tuple[bytes, bytes]],
) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["headers"])

    (middleware,) = middlewares()
    scope = {"type": "http", "headers": given}
    await middleware.cls(app)(scope, None, None)  # type: ignore[arg-type]
    assert seen == [[(b"x-request-disconnect-disabled", b"?1")]]
    assert scope["headers"] == given


async def test_what_is_no_http_passes_untouched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    (middleware,) = middlewares()
    await middleware.cls(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]
