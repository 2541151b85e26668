"""An HTTP/1.1 client: kept-alive connections and the responses that arrive on them.

A gateway sends one request to an engine per client request. In a burst each request waits until the earlier
ones are sent, so the CPU time of sending adds to the TTFT. A general-purpose client spends most of that time
on features that engines never need (docs/benchmarks.md has the figures). This one does not follow redirects,
decompress, use proxies or keep cookies. Responses are parsed by llhttp (httptools), which uvicorn uses for
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httptools

from serve_app.wire.handshake import REPLY_BYTES, Handshake, NotProven
from serve_app.wire.private_address import PrivateAddress

MAX_HEAD_BYTES = 1 << 16
"""Limit of a response's status line and headers."""

STALE_S = 0.25
"""If a kept connection closes this soon after a request was sent, without a byte, the server had closed it
while it was idle. The time is a round trip around the world; a server that closes later has worked on the
request."""

FIRST_ERROR = 400
FIRST_SERVER_ERROR = 500
"""A server may close after this status or a higher one without announcing it: uvicorn does after an app's
exception."""

PORTS = {"http": 80, "https": 443}
ALWAYS_SENT = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "promptly"}


class NoConnection(Exception):
    """No connection could be made, so nothing was sent."""


class BrokenConnection(Exception):
    """The connection ended before the response did, or the bytes were not valid HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server to connect to. ``path`` is prefixed to the target of every request. With a ``private`` address
    both ends prove that they know its secret before the first request."""

    host: str
    port: int
    is_tls: bool
    authority: str
    path: str
    private: PrivateAddress | None = None

    @classmethod
    def behind(cls, address: PrivateAddress) -> Origin:
        """The origin of a private listener."""
        return cls.of(address.url, address)

    @classmethod
    def of(cls, url: str, private: PrivateAddress | None = None) -> Origin:
        """The origin of a URL. Raises: ValueError: it is not an http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"no http or https URL: {url!r}")
        port = parts.port or PORTS[parts.scheme]
        authority = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        return cls(parts.hostname, port, parts.scheme == "https", authority, path, private)


class LongBody(Protocol):
    """A request's body that is sent in pieces, because it is not held in memory. It may be sent again."""

    @property
    def size(self) -> int: ...

    async def read(self, at: int) -> bytes:
        """Its next bytes from there on; at least one before its end."""
        ...


def request_bytes(
    origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes, *, follow: int = 0
) -> bytes:
    """The bytes of a whole request, or of its beginning: as many as ``follow`` are sent behind them.
    ``target``: path and query, encoded.

    Raises:
        ValueError: a header or the target contains a line break.
    """
    size = len(body) + follow
    length = {"content-length": str(size)} if size or method != "GET" else {}
    fields = {"host": origin.authority, **ALWAYS_SENT, **headers, **length}
    lines = [
        f"{method} {origin.path}{target} HTTP/1.1",
        *[f"{key}: {value}" for key, value in fields.items()],
    ]
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1:
        raise ValueError("a line break inside a request's header")
    return head.encode() + b"\r\n\r\n" + body


class Body:
    """The bytes of a response's body, and who waits for them. A base class of :class:`Connection`, because an
    object of its own would cost calls for every token."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        """httptools' callback for every token, which a method of this class would make slower."""
        self._size = 0  # of what was received since the last read, with HTTP's own bytes
        self._is_paused = False
        self._is_complete = False
        self._error: BrokenConnection | None = None

    async def read_some(self) -> bytes:
        """All bytes of the body received so far, at least one; ``b""`` at its end. ``status`` and ``headers``
        are set when it returns. Cancelling it loses no data.

        Raises:
            BrokenConnection: the connection ended before the body.
        """
        while not self._parts:
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._taken()

    def read_now(self) -> bytes | None:
        """All bytes of the body received so far; ``b""``: none; ``None``: the end or an error, which
        :meth:`read_some` tells."""
        if self._parts:
            return self._taken()
        return None if self._is_complete or self._error is not None else b""

    def _taken(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def listen(self, arrived: Callable[[], None]) -> bool:
        """Call ``arrived`` in the turn of the loop in which bytes arrive, and when the response ends or
        breaks. False, and nothing is called: there is something to read already."""
        if self._parts or self._is_complete or self._error is not None:
            return False
        self._listener = arrived
        return True

    def unlisten(self) -> None:
        self._listener = None

    def _wake(self) -> None:
        if self._listener is not None:
            self._listener()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(Body, asyncio.Protocol):
    """A connection that carries one request at a time; one reader reads the response. The socket is paused
    when ``2 * read_ahead`` bytes are unread, so a slow reader's memory use is bounded.

    It is one class because asyncio and the parser each call methods of it, and all of these change the same
    response; an object in between would cost calls for every token.
    """

    def __init__(self, read_ahead: int, on_end: Callable[[Connection], None]) -> None:
        super().__init__()
        self._read_ahead = read_ahead
        self._on_end = on_end
        self._parser: Any = None
        self._head_size = 0
        self._is_kept = False
        self._is_silent = True
        self._was_kept = False
        self._is_cut = False
        self._is_full = False
        self._sent_at = 0.0
        self.idle_until = 0.0
        """Loop time from which on no new request may be sent over this kept connection."""
        self.connect_ns = 0
        """How long it took to make, for its first request; 0 for a kept one."""
        self._reply: bytes | None = None
        self._proof = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case, values decoded as Latin-1."""

    @property
    def is_paused(self) -> bool:
        """Its reader is behind, so nothing more is received."""
        return self._is_paused

    @property
    def has_unread(self) -> bool:
        """Something was received that nobody has read yet."""
        return bool(self._parts)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_read(self) -> bool:
        """Whether the response is complete and fully read."""
        return self._is_complete and not self._parts

    @property
    def can_be_kept(self) -> bool:
        """Whether it can be kept for another request."""
        is_done = self._is_kept and self.is_read and not self._is_cut
        return is_done and self.is_open and self.status < FIRST_SERVER_ERROR

    @property
    def was_stale(self) -> bool:
        """Whether this kept connection closed immediately and without a byte: the server had closed it
        before, and has not read the request."""
        is_soon = self._loop.time() - self._sent_at < STALE_S
        return self._was_kept and self._is_silent and is_soon

    def keep(self, until: float) -> None:
        """Mark it as idle from now on; it may be reused before ``until`` (loop time)."""
        self._was_kept, self.idle_until, self.connect_ns = True, until, 0

    def is_young(self, now: float) -> bool:
        """Whether another request may be sent on it."""
        return self.is_open and now < self.idle_until

    async def prove(self, handshake: Handshake) -> None:
        """Do the handshake before the first request; this end's proof is sent together with that request.

        Raises:
            NotProven: the other end does not know the secret. Nothing is revealed to it, and the connection
                is closed.
        """
        assert self._transport is not None, "the connection was made"
        self._reply = b""
        self._transport.write(handshake.hello())
        try:
            while len(self._reply) < REPLY_BYTES:
                if self._error is not None:
                    raise NotProven("it hung up on a greeting")
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            self._proof = handshake.answer(self._reply)
        except BaseException:
            self.abort()
            raise
        self._reply = None

    def send(self, request: bytes) -> None:
        """Send a request. Bytes that the socket does not accept at once are buffered."""
        self.status, self._head_size, self._size = 0, 0, 0
        self._is_complete = self._is_kept = self._is_cut = False
        self._is_silent, self._sent_at = True, self._loop.time()
        self.headers = {}
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is None:  # it closed in the meantime
            self._error = BrokenConnection("closed")
        else:
            proof, self._proof = self._proof, b""
            self._transport.write(proof + request if proof else request)

    async def send_more(self, part: bytes) -> bool:
        """Send more of the request's body, once the socket has taken what was sent before. False, and nothing
        more is to be sent: the server answers already, as it does to refuse, or the connection has ended."""
        while self._is_full and not self._takes_no_more:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._is_cut = self._takes_no_more
        if self._transport is not None and not self._is_cut:
            self._transport.write(part)
        return not self._is_cut

    @property
    def _takes_no_more(self) -> bool:
        is_refused = self._is_complete or self.status >= FIRST_ERROR
        return is_refused or self._error is not None or self._transport is None

    def abort(self) -> None:
        """Close it at once; a waiting reader gets an error."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        if self._reply is not None and len(self._reply) + len(data) <= REPLY_BYTES:
            self._reply += data
            self._wake()
            return
        self._is_silent = False
        if self._parser is None or self._is_complete:  # data without a request
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"no HTTP: {type(error).__name__}")
        if not self.status:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._break("headers without an end")
        self._size += len(data)
        if self._size > 2 * self._read_ahead and self._parts:  # without any, no read would resume it
            self._pause()
        self._wake()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = self._parser = None  # the parser holds this object
        if not self._is_complete:
            if error is None and self._error is None and self._ends_with_the_connection():
                self._is_complete = True
            elif self._error is None:
                self._error = BrokenConnection("closed" if error is None else type(error).__name__)
        self._wake()
        self._on_end(self)

    # ---- httptools' callbacks

    def on_message_begin(self) -> None:
        if self._is_complete:  # an exception in a callback stops the parser
            raise BrokenConnection("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim response: the final one follows
            self.status, self.headers = 0, {}
        else:
            self._is_complete = True
            self._is_kept = bool(self._parser.should_keep_alive())  # known to the parser only here

    def _ends_with_the_connection(self) -> bool:
        """Whether the response has no length, so that closing the connection ends it."""
        return bool(self.status) and not {"content-length", "transfer-encoding"} & self.headers.keys()

    def _break(self, reason: str) -> None:
        self._error = BrokenConnection(reason)
        self.abort()
