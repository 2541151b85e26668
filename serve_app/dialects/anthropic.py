"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from serve_app.dialects.base import NamedEvents, Reading
from serve_app.errors import PromptlyError

LAST = "message_stop|error"

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
"""Anthropic's own keep-alive event, which may come at any place in a stream."""

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    408: "timeout_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's names by status; see https://docs.anthropic.com/en/api/errors."""


class AnthropicStream(NamedEvents):
    def __init__(self) -> None:
        super().__init__(LAST)

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        return b"event: error\ndata: " + _body(error, request_id) + b"\n\n"


class AnthropicDialect:
    """``{"type": "error", "error": {type, message}, "request_id"}``."""

    keep_alive = PING

    def read(self, fields: Mapping[str, Any]) -> Reading:
        return Reading(dict(fields), None)

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Where Anthropic's clients look for a request's id."""
        return {"request-id": request_id}

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        return _body(error, request_id)

    def stream(self) -> AnthropicStream:
        return AnthropicStream()


def _body(error: PromptlyError, request_id: str) -> bytes:
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    shaped = {"type": kind, "message": error.details.message}
    return msgspec.json.encode({"type": "error", "error": shaped, "request_id": request_id})
