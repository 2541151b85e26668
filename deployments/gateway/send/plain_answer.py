"""An answer that ends when its member's does: it is not continued at another one."""

from __future__ import annotations

from collections.abc import Callable

from deployments.gateway.request.answer import Live
from deployments.gateway.send.attempt import Attempt
from deployments.wire.upstream import ConnectionBroken
from serve_app.errors import EngineError, UpstreamFailed
from serve_app.openai import sse
from serve_app.openai.upstream_errors import FailureFinder, stream_error

FIRST_SERVER_ERROR = 500

TAIL = len(sse.DONE) + 8
"""Bytes at a stream's end that must contain its ``[DONE]``."""


class PlainAnswer(Live):
    """``ends_with_done``: a stream without ``[DONE]`` at its end was cut."""

    def __init__(self, attempt: Attempt, *, ends_with_done: bool) -> None:
        self._attempt = attempt
        self._response = attempt.response
        self._ends_with_done = ends_with_done and attempt.response.is_stream
        self._tail = b""
        self._failures = FailureFinder()
        self._failure: EngineError | None = None
        self.head = attempt.head

    async def read(self) -> bytes:
        if not self._ends_with_done:
            return await self._received()
        while self._failure is None:
            chunk = await self._received()
            if not chunk and sse.DONE not in self._tail:
                self._attempt.broke()
                raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
            passed = self._passed(chunk)
            if passed or (not chunk and self._failure is None):
                return passed
        raise self._failure

    def read_now(self) -> bytes | None:
        if self._failure is not None:
            return None
        chunk = self._response.read_now()
        if not chunk or not self._ends_with_done:
            return chunk
        passed = self._passed(chunk)
        return passed if passed or self._failure is None else None

    def listen(self, arrived: Callable[[], None]) -> bool:
        return self._failure is None and self._response.listen(arrived)

    def unlisten(self) -> None:
        self._response.unlisten()

    def _passed(self, chunk: bytes) -> bytes:
        passed = self._failures.feed(chunk)
        if self._failures.failure is not None:
            self._fail(self._failures.failure)
        self._tail = chunk[-TAIL:] if len(chunk) >= TAIL else (self._tail + chunk)[-TAIL:]
        return passed

    async def _received(self) -> bytes:
        try:
            return await self._response.read_some()
        except UpstreamFailed as error:
            if sse.DONE in self._tail:
                return b""  # the answer is complete, however the connection ends
            if isinstance(error, ConnectionBroken):
                self._attempt.broke()
            raise

    def _fail(self, event: bytes) -> None:
        """The error is raised by the next read, so that it is reported like all others, without the
        ``[DONE]`` that vLLM sends after it."""
        status, details = stream_error(event, self._response.redactor)
        if status >= FIRST_SERVER_ERROR:
            self._attempt.broke()
        self._failure = EngineError(details)

    def close(self) -> None:
        self._attempt.close()
