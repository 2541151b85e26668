"""Converts the errors of engines and upstreams to OpenAI's format."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.errors import ErrorDetails
from serve_app.openai.sse import iter_data
from serve_app.redaction import Redactor

ERROR_EVENT = b'data: {"error"'
"""How an error event of an engine's stream begins. A quote inside a text is escaped."""

TYPES = {400: "invalid_request_error", 404: "not_found_error", 405: "invalid_request_error"}
DEFAULT_TYPE = "upstream_error"
BAD_GATEWAY = 502
MAX_MESSAGE_CHARS = 2000
NOTHING_SECRET = Redactor()


def normalise_error(status: int, body: bytes, redactor: Redactor = NOTHING_SECRET) -> ErrorDetails:
    """An engine's error response in OpenAI's format, without secrets.

    vLLM reports a wrong field as ``body.messages``; clients know it as ``messages``. vLLM's ``code`` repeats
    the status as a number; OpenAI's is a name.
    """
    error = _error_object(body)
    param, code = error.get("param"), error.get("code")
    message = redactor.text(str(error.get("message") or f"The engine answered {status}."))
    return ErrorDetails(
        message=message[:MAX_MESSAGE_CHARS],  # after redaction: half a secret is not recognised
        type=TYPES.get(status, DEFAULT_TYPE),
        param=redactor.text(param.removeprefix("body.")) if isinstance(param, str) else None,
        code=redactor.text(code) if isinstance(code, str) and code else _default_code(status),
    )


def stream_error(first_event: bytes, redactor: Redactor = NOTHING_SECRET) -> tuple[int, ErrorDetails]:
    """Status and error of a stream whose first event is an error. A 4xx status is kept; others become 502."""
    data = next(iter_data(first_event), b"")
    code = _error_object(data).get("code")
    status = code if isinstance(code, int) and 400 <= code < 500 else BAD_GATEWAY
    return status, normalise_error(status, data, redactor)


def _default_code(status: int) -> str:
    return "upstream_failed" if status >= 500 else "upstream_refused"


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
