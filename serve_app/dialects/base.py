"""The contract of a dialect: how a client's API writes errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from serve_app.errors import PromptlyError

OVERLAP = 64
"""Bytes of a stream that are looked at again with the next ones: longer than any mark that is looked for."""


class StreamErrors(Protocol):
    """One stream on its way to a client, and the event that ends it when it fails."""

    passed: Callable[[bytes], None] | None
    """Told all bytes that the client is sent, in order. ``None``: nothing needs to be known of them, so that
    the loop that every token goes through is not slowed down."""

    has_ended: bool | None
    """Whether the stream has said itself how it ended; ``None`` where that is seen elsewhere."""

    def event(self, error: PromptlyError, request_id: str) -> bytes:
        """The last event, its blank line included."""


class Dialect(Protocol):
    """An API's errors. The status of an error is the same in all."""

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Response headers that the API's clients look for, with or without an error."""

    def body(self, error: PromptlyError, request_id: str) -> bytes:
        """An error response's body, JSON."""

    def stream(self) -> StreamErrors:
        """For one stream that begins."""


class NamedEvents:
    """What is common to streams whose events have names (``event: NAME``), one of which is the last.

    A line break inside JSON is escaped, so a line that begins with ``event:`` is never a part of a text.
    """

    def __init__(self, last: str) -> None:
        """``last``: the names of last events, as alternatives of a regular expression."""
        self._last = re.compile(rf"\nevent: ?(?:{last})\r?\n".encode())
        self._tail = b"\n"
        self.passed: Callable[[bytes], None] | None = self._look
        self.has_ended: bool | None = False

    def _look(self, data: bytes) -> None:
        seen = self._tail + data
        if self._last.search(seen) is not None:
            self.has_ended = True
        self.seen(seen)
        self._tail = seen[-OVERLAP:]

    def seen(self, data: bytes) -> None:
        """New bytes, with some of the ones before them."""
