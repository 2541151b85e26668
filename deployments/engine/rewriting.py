"""What middlewares before vLLM's own app need to change a request's body."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import Message, Receive, Scope


def decoded(body: bytes) -> dict[str, Any] | None:
    """Decode the body with the same module as the app, so that both read it alike. ``None`` if it is not a
    JSON object: the app will refuse it."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def with_length(scope: Scope, length: int) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def once(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that returns ``body`` first, then what the connection sends next (its end)."""
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
