"""Anthropic's errors, as a body and as the last event of a stream that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from serve_app.errors import ErrorDetails, PromptlyError
from serve_app.openai.overflow import overflow_of

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

THREADS_UNSUPPORTED = "thread_unsupported_request"
"""Anthropic's code, on which its libraries' tool runners go on without a thread."""


class AnthropicStream:
    """The writer of the answer knows how far the stream is, so nothing is followed here."""

    passed: Callable[[bytes], None] | None = None
    has_ended: bool | None = None

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        return b"event: error\ndata: " + error_body(error, request_id) + b"\n\n"


def error_body(error: PromptlyError, request_id: str) -> bytes:
    """``{"type": "error", "error": {type, message}, "request_id"}``; one error has ``details`` in it."""
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    shaped: dict[str, Any] = {"type": kind, "message": _message(error.details)}
    if error.code == THREADS_UNSUPPORTED:
        shaped["details"] = {"error_code": THREADS_UNSUPPORTED}
    return msgspec.json.encode({"type": "error", "error": shaped, "request_id": request_id})


def _message(details: ErrorDetails) -> str:
    """Agents compact a conversation, and go on, on exactly Anthropic's sentence for one that is too long."""
    overflow = overflow_of(details)
    if overflow is None or not overflow.is_prompts_alone:
        return details.message
    prompt = overflow.context + 1 if overflow.prompt is None else overflow.prompt
    return f"prompt is too long: {prompt} tokens > {overflow.context} maximum"
