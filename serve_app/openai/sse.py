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
        self._size = 0
        self._tail = b""

    def feed(self, piece: bytes) -> int:
        if piece.endswith(ENDS):
            self._size, self._tail = 0, b""
            return 0
        joint = self._tail + piece[:3]  # an event's end may be split anywhere
        end = max(piece.rfind(END), piece.rfind(ENDS[1]))
        if end >= 0 or END in joint or ENDS[1] in joint:
            self._size = 0
        self._size += len(piece) - max(end, 0)
        self._tail = (self._tail + piece)[-3:]
        return self._size


class UsageFilter:
    """Removes the usage chunk from a stream whose client did not ask for it.

    The gateway asks the engine for usage on every stream that may be stored (an entry without usage could not
    answer a later request that wants it). Most bytes pass unchanged; only a chunk with the mark, or one that
    ends inside an event, is split into events.
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        if not self._partial and chunk.endswith(ENDS) and NO_CHOICES.search(chunk) is None:
            return chunk
        if self._partial and b"\n" not in chunk:  # do not search a long event again for every piece
            self._partial += chunk
            return b""
        data = self._partial + chunk
        kept: list[bytes] = []
        position = 0
        for end in EVENT_END.finditer(data):
            event = data[position : end.end()]
            position = end.end()
            if NO_CHOICES.search(event) is None:
                kept.append(event)
        self._partial = data[position:]
        return b"".join(kept)

    def rest(self) -> bytes:
        """The bytes of an event that never ended."""
        partial, self._partial = self._partial, b""
        return partial
