"""An engine's errors, in OpenAI's shape whatever shape they came in."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.openai.sse import iter_data

TYPES = {400: "invalid_request_error", 404: "not_found_error", 405: "invalid_request_error"}
DEFAULT_TYPE = "upstream_error"
BAD_GATEWAY = 502
MAX_MESSAGE_CHARS = 2000


def normalise_error(status: int, body: bytes) -> bytes:
    """``{"error": {message, type, param, code}}`` from an engine's error response.

    vLLM reports a wrong field as ``body.messages``; clients know it as ``messages``.
    """
    error = _error_object(body)
    param = error.get("param")
    shaped = {
        "message": str(error.get("message") or f"The engine answered {status}.")[:MAX_MESSAGE_CHARS],
        "type": TYPES.get(status, DEFAULT_TYPE),
        "param": param.removeprefix("body.") if isinstance(param, str) else None,
        "code": error.get("code") or status,
    }
    return msgspec.json.encode({"error": shaped})


def stream_error(first_event: bytes) -> tuple[int, bytes]:
    """Status and body for a stream that begins with an error: the client's (4xx) stays the client's."""
    data = next(iter_data(first_event), b"")
    code = _error_object(data).get("code")
    status = code if isinstance(code, int) and 400 <= code < 500 else BAD_GATEWAY
    return status, normalise_error(status, data)


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(decoded, dict):
        return {}
    error = decoded.get("error")
    if isinstance(error, dict):
        return error
    detail = error or decoded.get("detail") or decoded.get("message")
    return {"message": detail if isinstance(detail, str) else None}
