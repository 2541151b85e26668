"""The contract of a dialect: how a client's API writes errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from serve_app.errors import PromptlyError

OVERLAP = 64
"""Bytes of a stream that are searched again with the next ones; longer than any mark searched for."""


class StreamErrors(Protocol):
    """One stream to a client, and the event that ends it if it fails."""

    passed: Callable[[bytes], None] | None
    """Called with all bytes sent to the client, in order. ``None`` if the dialect does not need them: then
    the loop that relays every token makes no extra call."""

    has_ended: bool | None
    """Whether the stream's last event was sent; ``None`` if other code notices that."""

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        """The event that ends the stream, blank line included."""


class Dialect(Protocol):
    """The error format of an API. The HTTP status of an error is the same in all of them."""

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Response headers that the API's clients look for, with or without an error."""

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        """An error response's body, JSON."""

    def stream(self) -> StreamErrors:
        """The state for one new stream."""


class NamedEvents:
    """Base of streams with named events (``event: NAME``); a known name ends the stream.

    A line break inside JSON is escaped, so a line that begins with ``event:`` is never part of a text.
    """

    def __init__(self, last: str) -> None:
        """``last``: the names of events that end a stream, as alternatives of a regular expression."""
        self._last = re.compile(rf"\nevent: ?(?:{last})\r?\n".encode())
        self._tail = b"\n"
        self.passed: Callable[[bytes], None] | None = self._search
        self.has_ended: bool | None = False

    def _search(self, data: bytes) -> None:
        seen = self._tail + data
        if self._last.search(seen) is not None:
            self.has_ended = True
        self.seen(seen)
        self._tail = seen[-OVERLAP:]

    def seen(self, data: bytes) -> None:
        """Called with new bytes, preceded by up to ``OVERLAP`` earlier ones."""
