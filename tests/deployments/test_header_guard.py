"""The middleware in front of Serve's own header parsing."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.header_guard import middlewares


async def send_through(headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"reached"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    (middleware,) = middlewares()
    await middleware.cls(app)({"type": "http", "headers": headers}, None, send)  # type: ignore[arg-type]
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize("value", [b"plain", "größer".encode(), b""])
async def test_utf8_passes(value: bytes) -> None:
    assert await send_through([(b"x-request-id", value)]) == (200, b"reached")


async def test_other_bytes_are_a_400_that_names_the_header() -> None:
    status, body = await send_through([(b"host", b"h"), (b"x-request-id", b"\xff")])
    assert status == 400
    assert b'"param":"x-request-id"' in body
