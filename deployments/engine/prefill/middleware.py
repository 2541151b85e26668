"""An ASGI middleware before vLLM's own app that has another engine prefill a request's prompt first.

The app stays the one that an engine's listener always serves, so errors, client disconnects and streaming
work as usual. The middleware only adds one field to the request's body, which says where to fetch the
prompt's KV cache.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.wire.listener import read_body
from serve_app.openai.prefill import KV_TRANSFER_PARAMS, prefill_request
from serve_app.openai.requests import Endpoint

Prefill = Callable[[Endpoint, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Has another engine prefill a request's prompt; returns where its KV cache is, or ``None``: prefill it here.
Never raises."""

ENDPOINTS = {endpoint.value: endpoint for endpoint in Endpoint}


class RemotePrefill:
    """The middleware before ``app``."""

    def __init__(self, app: ASGIApp, prefill: Prefill) -> None:
        self._app = app
        self._prefill = prefill

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:  # the client disconnected
            return
        request = _decoded(body)
        if request is not None:
            body = await self._placed(scope["path"], request)
        await self._app(_with_length(scope, len(body)), _once(body, receive), send)

    async def _placed(self, path: str, request: dict[str, Any]) -> bytes:
        request.pop(KV_TRANSFER_PARAMS, None)
        endpoint = ENDPOINTS.get(path)
        asked = None if endpoint is None else prefill_request(endpoint, request)
        found = None if endpoint is None or asked is None else await self._prefill(endpoint, asked)
        if found is not None:
            request[KV_TRANSFER_PARAMS] = found
        return json.dumps(request).encode()


def _decoded(body: bytes) -> dict[str, Any] | None:
    """Decode the body with the same module as the app, so that both read it alike. ``None`` if it is not a
    JSON object: the app will refuse it."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with_length(scope: Scope, length: int) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _once(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that returns ``body`` first, then what the connection sends next (its end)."""
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
