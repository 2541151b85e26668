"""Server-sent events, as far as OpenAI's streams use them: ``data:`` lines, each ended by a blank line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

DONE = b"[DONE]"
END = b"\n\n"
USAGE_MARK = b'"choices":[]'
"""Only the usage chunk has no choices; vLLM writes compact JSON."""


def event(data: bytes) -> bytes:
    return b"data: " + data + END


def json_event(value: Any) -> bytes:
    return event(msgspec.json.encode(value))


def iter_data(stream: bytes) -> Iterator[bytes]:
    """The payload of every ``data:`` line; comments and other fields are skipped."""
    for line in stream.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


class UsageFilter:
    """Takes the usage chunk out of a stream whose client did not ask for one.

    The gateway asks the engine for usage on every stream that may be stored (an entry without usage
    could not answer a later request that wants it). Bytes pass untouched; only a chunk that holds
    the mark, or that ends inside an event, is looked at more closely.
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        if not self._partial and USAGE_MARK not in chunk and chunk.endswith(END):
            return chunk
        events = (self._partial + chunk).split(END)
        self._partial = events.pop()
        return b"".join(item + END for item in events if USAGE_MARK not in item)

    def rest(self) -> bytes:
        """What is left of an event that never ended."""
        partial, self._partial = self._partial, b""
        return partial
