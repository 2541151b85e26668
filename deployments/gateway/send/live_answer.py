"""An engine's answer while it comes: read by whoever is furthest ahead, ended exactly once."""

from __future__ import annotations

import asyncio
import time

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.answer import Head
from deployments.gateway.request.call import Call, Purpose
from deployments.wire.upstream import ConnectionBroken, UpstreamResponse
from serve_app.errors import EngineError, UpstreamFailed
from serve_app.fleet import Dispatch
from serve_app.openai import sse
from serve_app.openai.upstream_errors import stream_error
from serve_app.quarantine import Incident, Quarantine

ERROR_EVENT = b'data: {"error"'
"""How an engine's stream begins to tell of an error. A quote inside a text is escaped."""

FIRST_SERVER_ERROR = 500

TAIL = len(sse.DONE) + 8
"""Bytes at a stream's end in which its ``[DONE]`` must stand."""


class Leg:
    """One member's part of an answer. ``read`` may be cancelled without losing bytes.

    One timer watches the whole leg: a time-out for every chunk would cost a tenth of the relay's time.
    """

    def __init__(
        self,
        call: Call,
        dispatch: Dispatch,
        response: UpstreamResponse,
        *,
        admission: Admission,
        quarantine: Quarantine,
        stall_s: float,
    ) -> None:
        self._call = call
        self.dispatch = dispatch
        self.response = response
        self._admission = admission
        self._quarantine = quarantine
        self._stall_s = stall_s
        self._started_ns = time.time_ns()
        self._complete = False
        self._open = True
        self._stalled = False
        self._waiting_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._alarm = self._loop.call_later(stall_s, self._look)

    @property
    def member(self) -> str:
        return self.dispatch.member.name

    @property
    def head(self) -> Head:
        response = self.response
        return Head(response.status, response.content_type, response.is_stream, self.member)

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end.

        Raises:
            UpstreamFailed: the connection broke, or nothing came for ``stall_s`` seconds.
        """
        self._waiting_since = self._loop.time()
        try:
            chunk = await self.response.read_some()
        except UpstreamFailed as error:
            raise self._stall() if self._stalled else error from None
        finally:
            self._waiting_since = None
        self.dispatch.member.heard_at = time.monotonic()
        if not chunk:
            if self._stalled:
                raise self._stall()
            self._complete = True
        return chunk

    def broke(self) -> Incident:
        """The answer was cut: whether the request is to blame for it, others will tell."""
        self._complete = False
        now = time.monotonic()
        return self._quarantine.broke(self._call.body_key, self.member, now, begun=True)

    def _look(self) -> None:
        """Close a connection that somebody has waited for too long; that ends the waiting."""
        now = self._loop.time()
        since = now if self._waiting_since is None else self._waiting_since
        if now >= since + self._stall_s:
            self._stalled = True
            self.response.abort()
        else:
            self._alarm = self._loop.call_at(since + self._stall_s, self._look)

    def _stall(self) -> UpstreamFailed:
        return UpstreamFailed(
            f"The engine sent nothing for {self._stall_s:g} s (limits.between_tokens_timeout_s).",
            code="upstream_stalled",
        )

    def close(self) -> None:
        """Ends the request at the engine if it still runs. May be called again."""
        if self._open:
            self._open = False
            self._alarm.cancel()
            self.response.close()
            purpose = self._call.purpose
            if self._complete and purpose is not Purpose.HELP and not self._quarantine.is_empty:
                self._quarantine.served(self._call.body_key)
            # Only a generated answer shows how long answers take.
            self._admission.end(self.dispatch, complete=self._complete and purpose is Purpose.ANSWER)
            self._call.place.timeline.add("upstream", self._started_ns)


class PlainAnswer:
    """One leg from begin to end. ``ends_with_done``: a stream that does not is one that was cut."""

    def __init__(self, leg: Leg, *, ends_with_done: bool) -> None:
        self._leg = leg
        self._ends_with_done = ends_with_done and leg.response.is_stream
        self._tail = b""
        self._failure: EngineError | None = None
        self.head = leg.head

    async def begin(self) -> Head:
        return self.head

    async def read(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            chunk = await self._leg.read()
        except UpstreamFailed as error:
            if sse.DONE in self._tail:
                return b""  # everything was said; how the connection ends is nobody's concern
            if isinstance(error, ConnectionBroken):
                self._leg.broke()
            raise
        if self._ends_with_done:
            if not chunk and sse.DONE not in self._tail:
                self._leg.broke()
                raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
            if ERROR_EVENT in chunk:
                return await self._before_failure(chunk)
            self._tail = (self._tail + chunk)[-TAIL:]
        return chunk

    async def _before_failure(self, chunk: bytes) -> bytes:
        """What the engine said before its error, which is then ours to tell: in the words of all our errors,
        and without the ``[DONE]`` that vLLM lets follow."""
        said, mark, error = chunk.partition(ERROR_EVENT)
        status, details = stream_error(mark + error)
        if status >= FIRST_SERVER_ERROR:
            self._leg.broke()
        self._failure = EngineError(details)
        return said or await self.read()

    def close(self) -> None:
        self._leg.close()
