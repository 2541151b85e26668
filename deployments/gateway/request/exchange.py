"""The HTTP edge of the gateway: one request as it arrives, and the plain ways to answer it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from deployments.gateway.request.account import Account
from deployments.gateway.request.connected import ClientGone, while_connected
from deployments.gateway.request.waiting import Waiting
from deployments.platform.http_protocol import chunk_writer, until_taken
from deployments.platform.request_account import ACCOUNT, RequestAccount, request_id
from serve_app.dialects import StreamErrors, dialect_of
from serve_app.errors import DeadlineExceeded, PromptlyError, UpstreamFailed
from serve_app.openai import sse
from serve_app.request.auth import Identity
from serve_app.request.headers import TIMEOUT
from serve_app.request.record import Facts
from serve_app.request.timing import Timeline

HTML = "text/html; charset=utf-8"
JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
DEBUG_TIMING_HEADER = "x-debug-timing"
"""``1``: all of ``Server-Timing``, for keys that may see it, and at the end of a stream."""
RETRY_HEADER = "x-should-retry"
"""OpenAI's and Anthropic's clients follow it instead of judging by the status."""
FAIL_TIMEOUT_S = 5.0


class Body:
    """The bytes of one response's body, on their way to the client."""

    def __init__(self, send: Send) -> None:
        self.timeline = Timeline(time.perf_counter_ns, time.time_ns())
        self._send = send
        self._stream: StreamErrors | None = None
        self._passed: Callable[[bytes], None] | None = None
        self._write_chunk: Callable[[bytes], bool] | None = None
        self._at_event_boundary = True
        self._is_complete = False

    @property
    def writes_now(self) -> bool:
        """Whether :meth:`write_now` may write: a stream has begun, and nothing stands between it and the
        socket."""
        return self._write_chunk is not None

    def write_now(self, data: bytes) -> bool:
        """Write a part of a stream without waiting. False, and nothing is written: :meth:`write` has to wait
        for the client."""
        if self._write_chunk is None or not self._write_chunk(data):
            return False
        self._at_event_boundary = data.endswith(sse.END)
        if self._passed is not None:
            self._passed(data)
        return True

    async def write(self, data: bytes, *, more: bool = True) -> None:
        self._at_event_boundary = data.endswith(sse.END)
        if self._passed is not None:
            self._passed(data)
        if not more:
            self._is_complete = True
        try:  # every token passes here: a method for this would cost a call
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except OSError as error:
            raise ClientGone from error
        if not more:
            self.timeline.last_byte_ns = self.timeline.clock()

    async def until_taken(self, timeout_s: float) -> None:
        """Until the client has taken the answer, of which this process holds what it has not.

        Raises:
            ClientGone: it has not in ``timeout_s``, and its connection is closed.
        """
        if not await until_taken(self._send, timeout_s):
            raise ClientGone


class Exchange(Body):
    """One HTTP request and the response to it. Header names are lower case, values Latin-1.

    It is long because every method reads or changes the state of one response: what may still be sent.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(send)
        self._scope = scope
        self.method: str = scope["method"]
        # The path without the application's route prefix, as engines know it. A slash at its end is
        # ignored, as in most other servers.
        self.root_path: str = scope.get("root_path", "")
        self.path: str = scope["path"].removeprefix(self.root_path).rstrip("/") or "/"
        self.query: bytes = scope.get("query_string", b"")
        self.headers = _headers(scope)
        self._account: RequestAccount | None = scope.get(ACCOUNT)
        self.request_id = (
            request_id(self.headers.get("x-request-id"))
            if self._account is None
            else self._account.request_id
        )
        self.facts = Facts()
        self.trace_id: str | None = None
        self.started, self.status = False, 0
        self._dialect = dialect_of(self.path)
        self.response_headers: dict[str, str] = dict(self._dialect.headers(self.request_id))
        if self._account is not None:
            self.response_headers["x-request-id"] = self.request_id
        self.shows_all_timing = False
        self._waiting: Waiting | None = None
        self.body: bytes | None = None
        """The whole body, where it is no longer to be received."""
        self.body_read: Callable[[Exchange], None] | None = None
        """Called when the whole body is there; may refuse the request."""
        self.body_done: Callable[[], None] | None = None
        """Called when the request has ended and its body is no longer held."""
        self.hold: Callable[[int], None] | None = None
        """Counts more bytes with those of its body; raises OverCapacity."""
        self.loaded_bytes = 0
        self.is_counted = False
        """It counts among the requests that the gateway answers at once."""
        self.tenant_known: Callable[[Exchange], None] | None = None
        """Called when it is known which of several tenants sends it; may refuse the request."""
        self.counted_for: str | None = None
        """The tenant among whose requests it counts."""
        self.span: Any = None
        self.socket: Any = None
        """The :class:`~deployments.gateway.request.socket.ClientSocket`, if it began as one."""
        self.known: Identity | None = None
        """Its identity, if it has one: open routes have none, nor has who was refused."""
        self.before_answer: Callable[[int], Coroutine[Any, Any, None]] | None = None
        """Awaited with the status before the first byte of the response is sent."""
        self.audit_target: str | None = None
        """What an administrator's request changes, where neither path nor query says it."""
        self.cookies: list[str] = []
        self.error_page: Callable[[PromptlyError], bytes] | None = None
        """Writes an error for a person instead."""
        self.account: Account | None = None
        """The sender's account, where there are limits."""
        self.is_handed_over = False
        """Another exchange goes on with the request, and its record is the request's."""
        self._receive = receive

    @property
    def identity(self) -> Identity:
        """Who sends it: the gate has let it in (``request/gate.py``)."""
        assert self.known is not None, "an open route has no identity"
        return self.known

    @identity.setter
    def identity(self, identity: Identity) -> None:
        self.known = identity
        self.facts.key_id, self.facts.user = identity.key_id, identity.user

    def scope_again(self) -> Scope:
        """A scope for the same request without its client, and without what counts the client's response."""
        return {name: value for name, value in self._scope.items() if name != ACCOUNT}

    def load(self, size: int) -> None:
        """The request holds so many bytes more that it refers to, until it ends.

        Raises:
            OverCapacity: its tenant's requests hold too many.
        """
        if self.hold is not None:
            self.hold(size)
        self.loaded_bytes += size

    @property
    def announces_body(self) -> bool:
        """Whether its headers announce a body (RFC 9112, section 6)."""
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    @property
    def announced_bytes(self) -> int:
        """The body's length by its headers; 0 if they name none. The server refused what is no number."""
        return int(self.headers.get("content-length", 0))

    async def body_part(self) -> tuple[bytes, bool]:
        """The next bytes of the body, and whether more follow. Raises: ClientGone: the client left before
        the body's end."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    def server_timing(self, *, ended: bool = False) -> dict[str, str]:
        """The header with the duration of each step that this client may see."""
        return {"server-timing": self.timeline.server_timing(whole=self.shows_all_timing, ended=ended)}

    @property
    def asks_for_timing(self) -> bool:
        """It wants the whole split, at the end of a stream too."""
        return self.headers.get(DEBUG_TIMING_HEADER) == "1"

    def keep_alive(self, period_s: float) -> None:
        """Until the response starts, tell the client every ``period_s`` that its stream will come. With the
        first of these, status and headers are sent: what fails later is an event in the stream."""
        self._waiting = Waiting(self._say_waiting, period_s)

    async def end_waiting(self) -> None:
        """Send no more messages of :meth:`keep_alive`."""
        if self._waiting is not None:
            await self._waiting.end()
            self._waiting = None

    async def _say_waiting(self) -> None:
        try:
            if not self.started:
                await self._begin(200, EVENT_STREAM, {"cache-control": "no-cache", **self.server_timing()})
            await self.write(self._dialect.keep_alive)
        except ClientGone:
            pass  # the task that runs the request notices it, too

    async def start(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Send status and headers, with all of ``response_headers``; nothing if :meth:`keep_alive` has sent
        them.

        Raises:
            UpstreamFailed: it has, and what would start now is no stream.
        """
        self.timeline.first_byte_ns = self.timeline.clock()
        if self._waiting is not None:
            await self.end_waiting()
            if self.started:
                if not content_type.startswith("text/event-stream"):
                    raise UpstreamFailed("The engine answered without the stream that was asked for.")
                return
        await self._begin(status, content_type, headers)

    async def _begin(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        if self.before_answer is not None:
            await self.before_answer(status)
        self.started = True
        self.status = status
        if self._account is not None:
            self._account.status = status
        if content_type.startswith("text/event-stream"):
            self.facts.streamed = True
            self._stream = self._dialect.stream()
            self._passed = self._stream.passed
            self.response_headers["x-accel-buffering"] = "no"  # nginx would hold tokens back
        if self.account is not None:
            self.account.tell_client()
        fields = {"content-type": content_type, **self.response_headers, **(headers or {})}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        raw += [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies]
        try:  # uvicorn drops what is sent to a client that left; other servers raise
            await self._send({"type": "http.response.start", "status": status, "headers": raw})
        except OSError as error:
            raise ClientGone from error
        if self._stream is not None:
            self._write_chunk = chunk_writer(self._send)

    async def respond(
        self, status: int, body: bytes, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole response."""
        await self.start(status, content_type, {"content-length": str(len(body)), **(headers or {})})
        await self.write(body, more=False)

    def switched(self) -> None:
        """It is a WebSocket from now on: there is no other response."""
        self.started = True
        self.status = 101
        if self._account is not None:
            self._account.status = 101

    async def respond_empty(self, headers: Mapping[str, str]) -> None:
        """Send a 204: a response of headers only."""
        self.response_headers |= headers
        await self.start(204, JSON)
        await self.write(b"", more=False)

    async def fail(self, error: PromptlyError) -> None:
        """End with an error, in the dialect of the path: as a response of its own, or as the last event of a
        stream that has begun (an event that was cut in the middle is closed first)."""
        self.note(error)
        await self.end_waiting()
        if self._is_complete:
            return  # the client was sent its whole answer, which it may not have read yet
        if not self.started:
            self.response_headers |= error.headers
            if error.should_retry is not None:
                self.response_headers[RETRY_HEADER] = str(error.should_retry).lower()
            if self.error_page is not None:
                await self.respond(error.status, self.error_page(error), HTML)
            else:
                await self.respond(error.status, self._dialect.body(error, self.request_id))
        elif self._stream is not None and self._stream.has_ended and self._at_event_boundary:
            await self.write(b"", more=False)  # the answer is complete; the error came after it
        elif self._stream is not None:
            separator = b"" if self._at_event_boundary else sse.END
            last = separator + self._stream.event(error, self.request_id)
            await self.write(last + timing_comment(self), more=False)

    def note(self, error: PromptlyError) -> None:
        """Put the error that it ended with into its record."""
        self.facts.error = error.details.code or error.details.type
        self.facts.error_status = error.status
        self.facts.chose_deadline = TIMEOUT.name in self.headers

    @property
    def is_cut(self) -> bool:
        """The stream has not ended by the rules of its dialect: if it ends now, it was cut."""
        return self._stream is not None and self._stream.has_ended is False

    async def respond_json(self, value: Any, status: int = 200) -> None:
        await self.respond(status, msgspec.json.encode(value))

    def run(self, work: Coroutine[Any, Any, None], timeout_s: float) -> Coroutine[Any, Any, None]:
        """Run ``work`` while the client stays and the deadline, counted from the request's start, allows; a
        deadline that passes is answered like any other failure (see :meth:`fail`).

        Raises:
            ClientGone: the client left first, or does not even read the error.
        """
        return self.run_while_connected(self._in_time(work, timeout_s))

    async def _in_time(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s - self.timeline.elapsed_ms() / 1000):
                await work
        except TimeoutError:
            await self._fail_in_time(DeadlineExceeded(timeout_s))

    async def _fail_in_time(self, error: PromptlyError) -> None:
        """The deadline may have passed because the client does not read; it may not read this either."""
        try:
            async with asyncio.timeout(FAIL_TIMEOUT_S):
                await self.fail(error)
        except TimeoutError:
            raise ClientGone from None

    def run_while_connected(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Run ``work`` to its end, or cancel it as soon as the client leaves. Raises: ClientGone."""
        return while_connected(self._receive, work)


def timing_comment(exchange: Exchange) -> bytes:
    """A comment for the end of a stream: its headers were sent when little was known. Empty for a client
    that did not ask."""
    if not exchange.asks_for_timing:
        return b""
    steps = exchange.timeline.server_timing(whole=exchange.shows_all_timing, ended=True)
    return b": server-timing: %b\n\n" % steps.encode()


Handler = Callable[[Exchange], Coroutine[Any, Any, None]]


def _headers(scope: Scope) -> dict[str, str]:
    """A header that comes more than once is one list (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
