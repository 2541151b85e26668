"""An answer that another gateway has, as clients of this one read it; if that gateway dies, this one asks an
engine itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from deployments.gateway.request.answer import Head, OpenAnswer
from deployments.wire.http1 import BrokenConnection, Connection
from serve_app.errors import UpstreamFailed
from serve_app.gateways.frames import BadFrame, Frames, Kind, failure, head_of
from serve_app.openai import sse
from serve_app.openai.regenerated import Regenerated

SILENT_S = 5.0
"""A gateway that sends not even a sign of life for so long is taken for dead. It sends one every second."""

Again = Callable[[], Coroutine[Any, Any, OpenAnswer]]
"""Asks an engine for the same answer."""


class StreamLost(Exception):
    """The other gateway is gone, or cannot be understood."""


class SharedStream:
    """The frames of one answer, on a connection of its own. ``first``: its first bytes; ``give_back`` returns
    the connection, which is closed unless all was read."""

    def __init__(
        self,
        connection: Connection,
        first: bytes,
        give_back: Callable[[], None],
        *,
        silent_s: float = SILENT_S,
    ) -> None:
        self._connection = connection
        self._give_back = give_back
        self._is_open = True
        self._frames = Frames()
        self._read: list[tuple[Kind, bytes]] = []
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._silent_s = silent_s
        self._watch = self._loop.call_later(silent_s, self._check)
        self._take(first)

    async def next(self) -> tuple[Kind, bytes]:
        """The next frame that says something of the answer. Cancelling it loses nothing.

        Raises:
            StreamLost: there is none, and the answer is not whole.
        """
        while True:
            while self._read:
                kind, payload = self._read.pop(0)
                if kind not in (Kind.ACCEPTED, Kind.WAITING):
                    return kind, payload
            try:
                data = await self._connection.read_some()
            except BrokenConnection as error:
                raise StreamLost(str(error)) from error
            if not data:
                raise StreamLost("it ended early")
            self._take(data)

    def close(self) -> None:
        """May be called again."""
        self._watch.cancel()
        if self._is_open:
            self._is_open = False
            self._give_back()

    def _take(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._read += self._frames.feed(data)
        except BadFrame as error:
            self.close()
            raise StreamLost(str(error)) from error

    def _check(self) -> None:
        """The other gateway was heard if something is unread, which is so while no client here reads on. A
        paused connection is silent for that reason."""
        quiet_s = self._loop.time() - self._heard_at
        is_behind = self._connection.is_paused or self._connection.has_unread
        if quiet_s >= self._silent_s and not is_behind:
            self._connection.abort()
        else:
            self._watch = self._loop.call_later(max(1.0, self._silent_s - quiet_s), self._check)


class SharedAnswer:
    """``again`` is called once at most, if the other gateway is lost; ``keep_bytes`` of what was sent are
    kept for then.

    It is long because the answer's gateway may be lost before, within and behind its first bytes.
    """

    head: Head

    def __init__(self, stream: SharedStream, again: Again, keep_bytes: int) -> None:
        self._stream = stream
        self._again = again
        self._keep_bytes = keep_bytes
        self._sent: list[bytes] = []
        self._size = 0
        self._rest = b""
        self._is_over = False
        self._own: OpenAnswer | None = None
        self._rewritten: Regenerated | None = None
        self.is_own = False
        """An engine was asked here."""

    async def open(self) -> OpenAnswer:
        """Raises: why the answer failed, for all that share it; or what asking an engine raises."""
        try:
            return await self._begun()
        except StreamLost:
            self._stream.close()
            return await self._ask()
        except BaseException:
            self._stream.close()
            raise

    async def _begun(self) -> OpenAnswer:
        kind, payload = await self._next()
        if kind is not Kind.HEAD:
            raise StreamLost("an answer without a head")
        try:
            self.head = head_of(payload, Head)
        except BadFrame as error:
            raise StreamLost(str(error)) from error
        if not self.head.is_stream:
            # All of it now: until its bytes are sent on, an engine can still be asked instead.
            while chunk := await self._chunk():
                self._sent.append(chunk)
            self._rest, self._is_over = b"".join(self._sent), True
            self._sent.clear()
        return self

    async def _ask(self) -> OpenAnswer:
        self.is_own = True
        return await self._again()

    async def _next(self) -> tuple[Kind, bytes]:
        """Raises: StreamLost; the answer's own failure."""
        kind, payload = await self._stream.next()
        if kind is not Kind.FAILED:
            return kind, payload
        try:
            raise failure(payload)
        except BadFrame as error:
            raise StreamLost(str(error)) from error

    async def _chunk(self) -> bytes:
        kind, payload = await self._next()
        if kind is Kind.END:
            return b""
        if kind is not Kind.DATA:
            raise StreamLost(f"{kind.name} within an answer")
        return payload

    async def read(self) -> bytes:
        """The next whole events; ``b""`` at the end.

        Raises:
            PromptlyError: the answer failed, for all that share it; or it was lost, and cannot go on.
        """
        while self._own is None:
            if self._is_over:
                rest, self._rest = self._rest, b""
                return rest
            try:
                passed = self._whole(await self._chunk())
            except StreamLost:
                await self._go_on()
                continue
            if passed:
                return passed
        return await self._regenerated(self._own)

    def _whole(self, chunk: bytes) -> bytes:
        """The whole events of what has come: a stream that is lost ends between two."""
        if not chunk:
            self._is_over = True
            self._stream.close()
            return b""  # `read` gives the rest
        data = self._rest + chunk
        end = max(data.rfind(each) + len(each) for each in sse.ENDS if each in data) if _ends(data) else 0
        passed, self._rest = data[:end], data[end:]
        self._size += len(passed)
        if self._size <= self._keep_bytes:
            self._sent.append(passed)
        else:
            self._sent.clear()
        return passed

    async def _go_on(self) -> None:
        """Raises: UpstreamFailed: what was sent is no longer known."""
        self._stream.close()
        self._rest = b""
        if self._size > self._keep_bytes:
            raise UpstreamFailed("The answer's gateway was lost.", code="upstream_failed")
        rewritten = Regenerated(self._sent)
        if rewritten.is_done:
            self._is_over = True
            return
        answer = await self._ask()
        if not answer.head.is_stream:
            answer.close()
            raise UpstreamFailed("The answer's gateway was lost.", code="upstream_failed")
        self._own, self._rewritten = answer, rewritten

    async def _regenerated(self, answer: OpenAnswer) -> bytes:
        assert self._rewritten is not None, "it is made with the second answer"
        while chunk := await answer.read():
            passed = self._rewritten.feed(chunk)
            if passed:
                return passed
        return b""

    def close(self) -> None:
        """May be called again."""
        self._stream.close()
        if self._own is not None:
            self._own.close()


def _ends(data: bytes) -> bool:
    return any(each in data for each in sse.ENDS)
