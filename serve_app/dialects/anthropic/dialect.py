"""Anthropic's Messages API as a dialect: what the gateway calls."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.dialects.anthropic.errors import AnthropicStream, error_body
from serve_app.dialects.anthropic.stream import PING
from serve_app.errors import PromptlyError


class AnthropicDialect:
    keep_alive = PING

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Where Anthropic's clients look for a request's id."""
        return {"request-id": request_id}

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def stream(self) -> AnthropicStream:
        return AnthropicStream()
