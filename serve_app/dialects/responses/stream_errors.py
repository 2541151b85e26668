"""How a stream of the Responses API ends with an error: its events are named and numbered."""

from __future__ import annotations

import re

import msgspec

from serve_app.dialects.base import NamedEvents
from serve_app.errors import ErrorDetails, PromptlyError
from serve_app.openai.overflow import overflow_of

LAST = r"response\.completed|response\.failed|response\.incomplete|error"
MARK = b'"sequence_number"'
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

    def seen(self, data: bytes) -> None:
        """A quote inside a text is escaped, so the mark is never part of a text. The last number may be
        incomplete."""
        last = data.rfind(MARK)
        while last >= 0:
            number = NUMBER.match(data, last)
            if number is not None:
                self._next = int(number[1]) + 1
                return
            last = data.rfind(MARK, 0, last)

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        """The documented event plus the key ``error``: OpenAI's Python client raises only for that key, and
        treats any other event as part of a good answer."""
        details = described(error)
        event = {
            "type": "error",
            "code": details.code,
            "message": details.message,
            "param": details.param,
            "sequence_number": self._next,
            "error": details,
        }
        return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
