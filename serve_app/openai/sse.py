"""The part of server-sent events that OpenAI's streams use: ``data:`` lines, each ended by a blank line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

DONE = b"[DONE]"
END = b"\n\n"
ENDS = (END, b"\r\n\r\n")
EVENT_END = re.compile(rb"\r?\n\r?\n")
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
"""Only the usage chunk has no choices. Servers other than vLLM may add spaces or use CRLF."""


def event(data: bytes) -> bytes:
    return b"data: " + data + END


def json_event(value: Any) -> bytes:
    return event(msgspec.json.encode(value))


def iter_data(stream: bytes) -> Iterator[bytes]:
    """The payload of every ``data:`` line; comments and other fields are skipped."""
    for line in stream.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


class EventMeter:
    """Measures the size, in bytes, of the event that has begun but not ended. ``feed`` it all bytes of a
    stream."""

    def __init__(self) -> None:
        self.size = 0
        """Of the event that has begun; 0: none has."""
        self._tail = b""

    def feed(self, piece: bytes) -> int:
        if piece.endswith(ENDS):
            self.size, self._tail = 0, b""
            return 0
        joint = self._tail + piece[:3]  # an event's end may be split anywhere
        end = max(piece.rfind(END), piece.rfind(ENDS[1]))
        if end >= 0 or END in joint or ENDS[1] in joint:
            self.size = 0
        self.size += len(piece) - max(end, 0)
        self._tail = (self._tail + piece)[-3:]
        return self.size
