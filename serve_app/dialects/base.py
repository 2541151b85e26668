"""The contract of a dialect: how a client's API writes requests, answers and errors.

Every request is a chat completion inside: a dialect reads its own request into the fields of one, and writes
the answer to it, from an engine, a request in flight or the cache alike, in its own form.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from serve_app.errors import BadRequest, ErrorDetails, PromptlyError, UpstreamRefused

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


class Writer(Protocol):
    """Writes one answer to a chat completion request in the form of a dialect. Each client has its own.

    Every token passes through it: it may decode and encode each event once, and keeps no more of the answer
    than it must repeat at the end.
    """

    def feed(self, chunk: bytes) -> bytes:
        """Bytes of a chat stream, split anywhere, as whole events of the dialect; ``b""`` if none is there.

        Raises:
            UpstreamFailed: they are no chat stream.
        """
        ...

    def rest(self) -> bytes:
        """The last events, when the stream has ended as it should (``[DONE]`` was fed)."""
        ...

    def whole(self, body: bytes) -> bytes:
        """An answer that is not streamed, JSON. Raises: UpstreamFailed: it is no chat completion."""
        ...


MakeWriter = Callable[[str, int], Writer]
"""Makes a writer from 32 hexadecimal digits that no other answer has, and the time of the answer in Unix
seconds."""


Ending = Callable[[bytes], Awaitable[bytes]]
"""Awaited with the last bytes of a complete answer, before they are sent: a whole answer, or what ``rest`` of
its writer gave. Returns what is sent instead."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A request in a dialect, as a chat completion request. ``writer`` is ``None`` for chat itself, whose
    answers are passed on as they come.

    The fields must be those that a chat client would send for the same request, defaults left out: the
    dialects then share cached answers and answers in flight. A stream asks for usage (``stream_options``).
    ``names``: the client's own fields, by those of the chat that were read from them, where the names differ.
    ``session``: the name of the conversation that it goes on with, for a client that names no session;
    ``begins_session``: or begins.
    """

    fields: dict[str, Any]
    writer: MakeWriter | None
    ending: Ending | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None
    begins_session: bool = False

    def as_asked(self, error: PromptlyError) -> PromptlyError:
        """An error of the chat, as its client can read it: fields and places of the chat have other names in
        its request. Errors that name none are the same in each dialect."""
        if type(error) is BadRequest:
            said = self._said(error.details)
            return BadRequest(said.message, param=said.param, code=said.code)
        if isinstance(error, UpstreamRefused):
            told = UpstreamRefused(error.status, self._said(error.details), error.headers)
            told.should_retry = error.should_retry
            return told
        return error

    def _said(self, error: ErrorDetails) -> ErrorDetails:
        param = error.param and self._named(f"`{error.param}`")[1:-1]
        return msgspec.structs.replace(error, message=self._named(error.message), param=param)

    def _named(self, text: str) -> str:
        return FIELD.sub(self._own, text)

    def _own(self, found: re.Match[str]) -> str:
        quote, name, within = found["quote"] or "", found["name"], found["within"]
        own = self.names.get(name)
        if name in CONVERSATION and within:
            return quote + (own or name)
        is_quoted = quote == "`" == found.string[found.end() : found.end() + 1]
        # `stop` and `user` are also words: only a name with an underscore is a field in any place.
        return found[0] if own is None or not (is_quoted or "_" in name) else quote + own


FIELD = re.compile(r"(?<!\w)(?P<quote>[`'\"])?(?P<name>[a-z]\w*)(?P<within>(?:\[\d+\]|\.\w+)*)")
"""What may name a field of a chat, or a place within it."""

CONVERSATION = ("messages", "tools")
"""The fields whose places are others in the client's request, whatever their names."""


KEEP_ALIVE_COMMENT = b": the answer has not begun\n\n"
"""A comment of server-sent events: parsers pass over a line that begins with a colon."""


class Dialect(Protocol):
    """How an API writes errors and keeps streams alive, by path. The HTTP status of an error is the same in
    all of them.

    Its requests are read elsewhere, because that may take the client's headers or what is stored: a
    ``Read`` (``gateway/generation/admit.py``) gives a :class:`Reading`, with the writer of the answer. To add
    an API takes a Dialect in ``registry.py``, a ``Read`` at its handler in ``gateway/runtime.py``, its route
    (``api/routes.py``) and the path that stands behind it (``settings/paths.py``: ``ASKED_AS``).
    """

    keep_alive: bytes
    """Bytes that a stream's reader passes over, blank line included; may come before the first event."""

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
