"""Converts the errors of engines and upstreams to OpenAI's format."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.errors import ErrorDetails
from serve_app.openai.field_errors import plainly_told
from serve_app.openai.sse import iter_data
from serve_app.redaction import Redactor

ERROR_MARK = b'"error"'
"""Part of every event that tells of a failure. Inside a text its quotes are escaped."""
FAILED = "error"
"""The ``finish_reason`` of an answer that failed."""

TYPES = {400: "invalid_request_error", 404: "not_found_error", 405: "invalid_request_error"}
DEFAULT_TYPE = "upstream_error"
BAD_GATEWAY = 502
MAX_MESSAGE_CHARS = 2000
NOTHING_SECRET = Redactor()
NO_PATH = "Not Found"
"""What vLLM, and most servers of its kind, say of a path that they do not have."""


def normalise_error(status: int, body: bytes, redactor: Redactor = NOTHING_SECRET) -> ErrorDetails:
    """An engine's error response in OpenAI's format, without secrets.

    vLLM reports a wrong field as ``body.messages``; clients know it as ``messages``. vLLM's ``code`` repeats
    the status as a number; OpenAI's is a name.
    """
    error = _error_object(body)
    param, code = error.get("param"), error.get("code")
    message = redactor.text(plainly_told(str(error.get("message") or f"The engine answered {status}.")))
    if status == 404 and message == NO_PATH:
        message = "The server of this model does not have this path: it may be one of another kind of model."
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


class _Event(msgspec.Struct):
    error: Any = None
    choices: Any = None


_event = msgspec.json.Decoder(_Event)


def is_failure(data: bytes) -> bool:
    """Whether an event's data tells that the answer failed: by an ``error``, alone or beside choices, or by
    the reason for which a choice ended."""
    if ERROR_MARK not in data:
        return False
    try:
        event = _event.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.startswith(b'{"error"')
    choices = event.choices if isinstance(event.choices, list) else []
    if event.error or (event.error is not None and not choices):
        return True
    return any(isinstance(choice, dict) and choice.get("finish_reason") == FAILED for choice in choices)


def begins_with_failure(first: bytes) -> bool:
    """Whether the first event of a stream's first bytes tells of a failure."""
    return ERROR_MARK in first and is_failure(next(iter_data(first), b""))


class FailureFinder:
    """Finds the event that tells of a failure in a stream that comes in pieces split anywhere. A line that
    has not ended is held back until it has: what it tells is not known before."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self.failure: bytes | None = None
        """The line that tells of it. Nothing after it is passed on."""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on; ``b""`` marks the stream's end and returns what was held back."""
        if not piece:
            piece, self._partial = bytes(self._partial), bytearray()
        elif b"\n" not in piece:  # do not search a long line again for every piece
            self._partial += piece
            return b""
        else:
            end = piece.rfind(b"\n") + 1
            piece, self._partial = bytes(self._partial) + piece[:end], bytearray(piece[end:])
        return self._before_failure(piece) if ERROR_MARK in piece else piece

    def _before_failure(self, piece: bytes) -> bytes:
        at = 0
        for line in piece.splitlines(keepends=True):
            if line.startswith(b"data:") and is_failure(line[5:].strip()):
                self.failure = line
                return piece[:at]
            at += len(line)
        return piece


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
