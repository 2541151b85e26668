"""What uvicorn does at the edge of HTTP, mended: trailers, its own 400, half-closed connections; and a way to
write the chunks of a stream without a coroutine and a message for each (:func:`chunk_writer`), and to know
when an answer was taken (:func:`until_taken`).

Checked against uvicorn 0.54 and httptools 0.9 (llhttp). It mends ``HttpToolsProtocol``, where:

- A trailer (a header behind the last chunk) is appended to the list that the application reads. A key or a
  content type in a trailer counted if it came in the same packet as the head, and did not if it came later.
- llhttp takes ``Connection: close`` in a trailer for the end of the connection, after uvicorn has promised to
  keep it. Nothing more is read on it: behind a proxy that reuses connections, the next request there, of
  any client, was never answered.
- What is not HTTP is answered with plain text, even in the middle of another answer on the same connection.
- A client that shuts down its sending side after its request gets nothing: asyncio closes the connection.
  The gateway cannot tell it from a client that leaves, so the request ends; the client now gets an error that
  says why.

RFC 9110, section 6.5.1: trailers are not merged into the headers. When uvicorn moves, look at these
callbacks; the test in ``tests/deployments/platform/test_http_protocol.py`` says whether this is still needed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serve_app.errors import BadRequest
from serve_app.front_door import http_text

MARK: Final = "_promptly_mends_it"
MALFORMED: Final = http_text(
    400,
    BadRequest(
        "The request is not valid HTTP: its method, target, a header or a chunk of its body cannot be read.",
        code="malformed_http",
    ),
)
HALF_CLOSED: Final = http_text(
    400,
    BadRequest(
        "The client closed its sending side before it was answered, which counts as leaving.",
        code="half_closed",
    ),
)


def mend_http(protocol: Any = HttpToolsProtocol) -> None:
    """Mend every connection that this process accepts from now on. A second call does no harm."""
    if getattr(protocol, MARK, False):
        return
    protocol.on_headers_complete = _with_own_headers(protocol.on_headers_complete)
    protocol.on_message_complete = _told_of_the_end(protocol.on_message_complete)
    protocol.send_400_response = _refuse_malformed
    protocol.eof_received = _refuse_half_closed
    setattr(protocol, MARK, True)


def _with_own_headers(original: Any) -> Any:
    @functools.wraps(original)
    def on_headers_complete(self: Any) -> None:
        original(self)
        self.scope["headers"] = list(self.headers)  # what is appended from now on is a trailer

    return on_headers_complete


def _told_of_the_end(original: Any) -> Any:
    @functools.wraps(original)
    def on_message_complete(self: Any) -> None:
        original(self)
        if self.cycle is None or self.parser.should_keep_alive():
            return
        self.cycle.keep_alive = False  # the answer says so, and the connection ends with it
        if self.cycle.response_complete:
            self.transport.close()

    return on_message_complete


def _refuse_malformed(self: Any, _: str) -> None:
    if not _is_answering(self):
        self.transport.write(MALFORMED)
    self.transport.close()


def _refuse_half_closed(self: Any) -> None:
    """asyncio closes the connection afterwards: an ``eof_received`` that returns nothing asks for that."""
    cycle = self.cycle
    is_waiting = cycle is not None and not cycle.response_complete and not cycle.more_body
    if is_waiting and not cycle.response_started:
        self.transport.write(HALF_CLOSED)


def _is_answering(protocol: Any) -> bool:
    """Whether an answer has begun and not ended: bytes written now would be read as a part of it."""
    cycle = protocol.cycle
    return cycle is not None and cycle.response_started and not cycle.response_complete


def connection_of(server: Any) -> asyncio.Protocol:
    """A new connection of a ``uvicorn.Server``, as it makes one for its own sockets."""
    made: asyncio.Protocol = server.config.http_protocol_class(
        config=server.config, server_state=server.server_state, app_state=server.lifespan.state
    )
    return made


def chunk_writer(send: Any) -> Callable[[bytes], bool] | None:
    """Writes a part of a response of unknown length, whose head uvicorn's ``send`` has written, as ``send``
    does with ``more_body``; without waiting, so it returns False, and has written nothing, where ``send``
    would wait for a slow client or drop the bytes. ``None`` for any other ``send``, as of a middleware."""
    cycle = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or send.__func__ is not RequestResponseCycle.send:
        return None
    if not cycle.chunked_encoding or cycle.scope["method"] == "HEAD":
        return None
    flow, write = cycle.flow, cycle.transport.write

    def write_chunk(data: bytes) -> bool:
        if flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    return write_chunk


async def until_taken(send: Any, timeout_s: float) -> bool:
    """Waits for the client to take what uvicorn's ``send`` has written but for some KB, which ``send`` itself
    does only before it writes more. The connection of one that has not in ``timeout_s`` is closed, and with
    it goes what was written: False. At once for any other ``send``."""
    cycle = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or not cycle.flow.write_paused:
        return True
    try:
        async with asyncio.timeout(timeout_s):
            await cycle.flow.drain()
    except TimeoutError:
        cycle.transport.abort()
        return False
    return True
