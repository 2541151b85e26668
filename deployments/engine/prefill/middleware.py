"""An ASGI middleware before vLLM's own app that has another engine prefill a request's prompt first.

The app stays the one that an engine's listener always serves, so errors, client disconnects and streaming
work as usual. The middleware only adds one field to the request's body, which says where to fetch the
prompt's KV cache.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.engine.rewriting import decoded, once, with_length
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
        request = decoded(body)
        if request is not None:
            body = await self._placed(scope["path"], request)
        await self._app(with_length(scope, len(body)), once(body, receive), send)

    async def _placed(self, path: str, request: dict[str, Any]) -> bytes:
        request.pop(KV_TRANSFER_PARAMS, None)
        endpoint = ENDPOINTS.get(path)
        asked = None if endpoint is None else prefill_request(endpoint, request)
        found = None if endpoint is None or asked is None else await self._prefill(endpoint, asked)
        if found is not None:
            request[KV_TRANSFER_PARAMS] = found
        return json.dumps(request).encode()
