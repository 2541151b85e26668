"""An answer that ends when its member's does: it is not continued at another one."""

from __future__ import annotations

from deployments.gateway.send.attempt import Attempt
from deployments.wire.upstream import ConnectionBroken
from serve_app.errors import EngineError, UpstreamFailed
from serve_app.openai import sse
from serve_app.openai.upstream_errors import ERROR_EVENT, stream_error

FIRST_SERVER_ERROR = 500

TAIL = len(sse.DONE) + 8
"""Bytes at a stream's end that must contain its ``[DONE]``."""


class PlainAnswer:
    """``ends_with_done``: a stream without ``[DONE]`` at its end was cut."""

    def __init__(self, attempt: Attempt, *, ends_with_done: bool) -> None:
        self._attempt = attempt
        self._response = attempt.response
        self._ends_with_done = ends_with_done and attempt.response.is_stream
        self._tail = b""
        self._failure: EngineError | None = None
        self.head = attempt.head

    async def read(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            chunk = await self._response.read_some()
        except UpstreamFailed as error:
            if sse.DONE in self._tail:
                return b""  # the answer is complete, however the connection ends
            if isinstance(error, ConnectionBroken):
                self._attempt.broke()
            raise
        if self._ends_with_done:
            if not chunk and sse.DONE not in self._tail:
                self._attempt.broke()
                raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
            if ERROR_EVENT in chunk:
                return await self._before_failure(chunk)
            self._tail = (self._tail + chunk)[-TAIL:]
        return chunk

    async def _before_failure(self, chunk: bytes) -> bytes:
        """The bytes before an engine's error event. The error itself is raised by the next read, so that it
        is reported like all others, without the ``[DONE]`` that vLLM sends after it."""
        before, mark, error = chunk.partition(ERROR_EVENT)
        status, details = stream_error(mark + error)
        if status >= FIRST_SERVER_ERROR:
            self._attempt.broke()
        self._failure = EngineError(details)
        return before or await self.read()

    def close(self) -> None:
        self._attempt.close()
