"""How a stream of the Responses API ends with an error: its events are named and numbered."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from serve_app.dialects.base import NamedEvents
from serve_app.errors import ErrorDetails, PromptlyError
from serve_app.openai.overflow import overflow_of

LAST = r"response\.completed|response\.failed|response\.incomplete|error"
MARK = b'"sequence_number"'
RESPONSE = re.compile(rb'"id":"(resp_[0-9a-f]{32})"')
NUMBER = re.compile(rb'"sequence_number"\s*:\s*([0-9]+)(?=[^0-9])')


def described(error: PromptlyError) -> ErrorDetails:
    """Agents compact a conversation on the code that OpenAI has for one that is too long."""
    details = error.details
    if overflow_of(details) is None:
        return details
    return msgspec.structs.replace(details, code="context_length_exceeded", param="input")


class ResponsesStream(NamedEvents):
    """Counts the events: each has the number of the one before plus one."""

    def __init__(self) -> None:
        super().__init__(LAST)
        self._next = 0
        self._id: str | None = None

    def seen(self, data: bytes) -> None:
        """A quote inside a text is escaped, so the mark is never part of a text. The last number may be
        incomplete."""
        if self._id is None:
            found = RESPONSE.search(data)
            self._id = None if found is None else found[1].decode()
        last = data.rfind(MARK)
        while last >= 0:
            number = NUMBER.match(data, last)
            if number is not None:
                self._next = int(number[1]) + 1
                return
            last = data.rfind(MARK, 0, last)

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        """``response.failed``, which Codex waits for, and then ``error`` with a key of that name beside the
        documented ones: OpenAI's Python client raises only for that key."""
        details = described(error)
        reason = {"code": details.code or "server_error", "message": details.message}
        response: dict[str, Any] = {
            "id": self._id,
            "object": "response",
            "status": "failed",
            "error": reason,
            "output": [],
        }
        failed = {"type": "response.failed", "sequence_number": self._next, "response": response}
        event = {
            "type": "error",
            "code": details.code,
            "message": details.message,
            "param": details.param,
            "sequence_number": self._next + 1,
            "error": details,
        }
        return _event("response.failed", failed) + _event("error", event)


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(fields))
