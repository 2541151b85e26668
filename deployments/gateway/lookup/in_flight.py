"""Requests in flight, whose answers several clients may share.

No task stands between an engine and a client: the reader that first needs the next bytes reads them for all.
If it is cancelled, no bytes are lost and another reader continues, so the first client may leave at any time.
When the last reader leaves, the request is aborted at its engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

from deployments.gateway.request.answer import Head, Live, OpenAnswer, live
from serve_app.errors import BudgetEnded, PromptlyError, SlowReader, UpstreamFailed

InFlightKey = tuple[UUID, bool, bool]
"""The exact cache key, whether the answer is streamed, and whether it may fail over."""

Completed = Callable[[Head, list[bytes]], None]
"""Called once with a complete answer's bytes."""


Watcher = Callable[[InFlightKey], None]

JOINED_ENDED = (
    "The identical request that this one shared its answer with has ended early, at a limit of its own: "
    "send the request again."
)


WOKEN_A_TURN = 4
"""So many readers of an answer act in one turn of the event loop, then other work has its turn: each takes
some 0.1 ms for a chunk, and a millisecond for its request's end."""


class Signal:
    """Wakes all that wait for it, ``WOKEN_A_TURN`` in a turn of the event loop; ``at_once``: without it, as
    they would else come too late."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future

    def notify(self, *, at_once: bool = False) -> None:
        waiting, self.waiting = self.waiting, []
        self._wake(waiting, len(waiting) if at_once else WOKEN_A_TURN)

    def _wake(self, waiting: list[asyncio.Future[None]], most: int) -> None:
        for future in waiting[:most]:
            if not future.done():
                future.set_result(None)
        if len(waiting) > most:
            asyncio.get_running_loop().call_soon(self._wake, waiting[most:], most)


class Opening:
    """The answer of a member, from the request on. ``alone``: the only reader opens it when it first reads,
    which saves a round of the event loop; else it opens in a task of its own."""

    def __init__(self, opening: Coroutine[Any, Any, OpenAnswer], *, alone: bool) -> None:
        self._opening = opening if alone else asyncio.ensure_future(opening)
        self.answer: OpenAnswer | None = None

    @property
    def has_failed(self) -> bool:
        """It will not open."""
        opening = self._opening
        if not isinstance(opening, asyncio.Future) or not opening.done():
            return False
        return opening.cancelled() or opening.exception() is not None

    async def begun(self) -> OpenAnswer:
        """The answer once its first bytes are there. Raises what opening it raised."""
        while self.answer is None:
            opening = self._opening
            if not isinstance(opening, asyncio.Future):
                self.answer = await opening
                break
            try:
                self.answer = await asyncio.shield(opening)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if opening is self._opening or (task is not None and task.cancelling()):
                    raise
        return self.answer

    def replace(self, opening: Coroutine[Any, Any, OpenAnswer]) -> bool:
        """Open ``opening`` instead of an answer that has not begun. False: it has, or its reader opens it."""
        before = self._opening
        if self.answer is not None or not isinstance(before, asyncio.Future) or before.done():
            return False
        self._opening = asyncio.ensure_future(opening)
        before.cancel()
        before.add_done_callback(_close_if_open)
        return True

    def close(self) -> None:
        """Abort an answer that still opens; close one that is open."""
        if self.answer is not None:
            self.answer.close()
        elif isinstance(self._opening, asyncio.Future):
            self._opening.cancel()
            self._opening.add_done_callback(_close_if_open)
        else:
            self._opening.close()


class InFlightRequest:
    """One answer, its bytes so far, and its readers.

    ``keep_bytes`` of it are kept for clients that join, for slow readers and for ``completed``; a longer
    answer keeps only what its slowest reader still needs, and is not recorded.

    It has many methods because readers wait for bytes in two ways, and both move the same positions.
    """

    def __init__(
        self,
        opening: Opening,
        keep_bytes: int,
        completed: Completed | None,
        ended: Callable[[InFlightRequest], None],
        *,
        priority: int,
    ) -> None:
        self._opening = opening
        self._priority = priority
        self._keep_bytes = keep_bytes
        self._completed = completed
        self._ended = ended
        self._readers: set[Reader] = set()
        self._chunks: list[bytes] = []
        self._size = 0
        self._dropped = 0
        self._reading = False
        self._is_over = False
        self._error: PromptlyError | None = None
        self._has_read = Signal()
        self._at_end: list[Callable[[], object]] = []

    @property
    def is_whole(self) -> bool:
        """It can be joined: all bytes so far are kept, and it has a reader."""
        has_failed = self._error is not None or self._opening.has_failed
        return self._dropped == 0 and not has_failed and bool(self._readers)

    @property
    def answer(self) -> OpenAnswer | None:
        """Once its first bytes are there."""
        return self._opening.answer

    def suits(self, priority: int) -> bool:
        """A more urgent client does not wait in the queue behind a less urgent request."""
        return self.is_whole and (priority >= self._priority or self._opening.answer is not None)

    def goes_on(self, at_end: Callable[[], object]) -> bool:
        """It has readers: ``at_end`` is called when it has ended. False, and nothing is called: it has none,
        or has ended."""
        if self._is_over or not self._readers:
            return False
        self._at_end.append(at_end)
        return True

    def replace(self, opening: Coroutine[Any, Any, OpenAnswer], completed: Completed) -> bool:
        """All its readers get another answer, which is had elsewhere. False: this one has begun."""
        if self._is_over or not self._readers or not self._opening.replace(opening):
            return False
        self._completed = completed
        return True

    def _tell_end(self) -> None:
        waiting, self._at_end = self._at_end, []
        for at_end in waiting:
            at_end()

    def add_reader(self, *, has_joined: bool = False) -> Reader:
        reader = Reader(self, has_joined=has_joined)
        self._readers.add(reader)
        return reader

    def remove_reader(self, reader: Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._ended(self)
            self._opening.close()
            self._tell_end()

    async def begun(self) -> OpenAnswer:
        """The answer once its first bytes are there. Raises what opening it raised."""
        return await self._opening.begun()

    async def read(self, reader: Reader) -> bytes:
        """The next bytes for one of the readers; ``b""`` behind the last ones. If no reader has had them yet,
        this one reads them for all.

        Raises:
            UpstreamFailed: the answer was cut.
            SlowReader: the bytes are no longer kept.
        """
        while True:
            kept = reader.position - self._dropped
            if 0 <= kept < len(self._chunks):
                reader.position += 1
                return self._chunks[kept]
            if kept < 0 or self._is_over:
                return self._no_more(reader, is_late=kept < 0)
            if self._reading:
                await self._has_read.wait()
                continue
            answer = self._opening.answer or await self._opening.begun()
            self._reading = True
            try:
                chunk = await answer.read()
            except PromptlyError as error:
                self._error, self._is_over = error, True
                self._tell_end()
            else:
                if chunk:
                    self._keep(chunk)
                else:
                    self._finish(answer)
            finally:
                self._reading = False
                if self._has_read.waiting:
                    self._has_read.notify(at_once=self._is_nearly_full)

    def read_now(self, reader: Reader) -> bytes | None:
        """Bytes for the reader that listens, as :meth:`Live.read_now`."""
        kept = reader.position - self._dropped
        answer = live(self._opening.answer)
        if answer is None or kept != len(self._chunks):
            return None  # the listener would be called for new bytes only
        chunk = answer.read_now()
        if chunk:
            self._keep(chunk)
            reader.position += 1
            if self._has_read.waiting:
                self._has_read.notify(at_once=self._is_nearly_full)
        return chunk

    def listen(self, reader: Reader, arrived: Callable[[], None]) -> bool:
        """This reader reads for all until :meth:`unlisten`. False, and nothing is called: another one reads,
        or there is something to read."""
        answer = live(self._opening.answer)
        is_behind = reader.position - self._dropped != len(self._chunks)
        if self._reading or self._is_over or is_behind or answer is None:
            return False
        self._reading = answer.listen(arrived)
        return self._reading

    def unlisten(self) -> None:
        """Called by the reader that listened. Another one may read from now on."""
        answer = live(self._opening.answer)
        assert answer is not None, "it was listened to"
        answer.unlisten()
        self._reading = False
        self._has_read.notify()

    def _keep(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._keep_bytes:
            self._forget()

    @property
    def _is_nearly_full(self) -> bool:
        """A reader that comes some turns later could find its bytes dropped."""
        return self._size > self._keep_bytes // 2

    def _no_more(self, reader: Reader, *, is_late: bool) -> bytes:
        if is_late:
            raise SlowReader(self._keep_bytes)
        if isinstance(self._error, BudgetEnded) and reader.has_joined:
            raise UpstreamFailed(JOINED_ENDED, code="joined_answer_ended")
        if self._error is not None:
            raise self._error
        return b""

    def _finish(self, answer: OpenAnswer) -> None:
        self._is_over = True
        answer.close()  # the engine is done, however slowly the readers read
        self._tell_end()
        if self._completed is not None and self._dropped == 0:
            self._completed(answer.head, self._chunks)

    def _forget(self) -> None:
        """Drop what every reader has; then, where that is not enough, what only the slowest still need."""
        needed = min((reader.position for reader in self._readers), default=0)
        while self._chunks and (self._dropped < needed or self._size > self._keep_bytes):
            if len(self._chunks) == 1 and self._dropped >= needed:
                return  # the newest chunk, whatever its size, is what the fastest reader waits for
            self._size -= len(self._chunks.pop(0))
            self._dropped += 1


class Reader(Live):
    """One client's position in an answer."""

    head: Head

    def __init__(self, request: InFlightRequest, *, has_joined: bool = False) -> None:
        """``has_joined``: another client asked for the answer, and its limits are not this one's."""
        self._request = request
        self.has_joined = has_joined
        self._listens = False
        self.position = 0

    async def begin(self) -> Reader:
        """Sets ``head``. Raises what opening the answer raised."""
        self.head = (await self._request.begun()).head
        return self

    def read(self) -> Coroutine[Any, Any, bytes]:
        """The next bytes for this client; ``b""`` at the end. Raises: as :meth:`InFlightRequest.read`."""
        return self._request.read(self)

    def read_now(self) -> bytes | None:
        return self._request.read_now(self)

    def listen(self, arrived: Callable[[], None]) -> bool:
        self._listens = self._request.listen(self, arrived)
        return self._listens

    def unlisten(self) -> None:
        if self._listens:
            self._listens = False
            self._request.unlisten()

    def goes_on(self, at_end: Callable[[], object]) -> bool:
        """See :meth:`InFlightRequest.goes_on`."""
        return self._request.goes_on(at_end)

    def close(self) -> None:
        """May be called again."""
        self.unlisten()
        self._request.remove_reader(self)


class InFlightRequests:
    """One gateway's requests that other clients may join, by key."""

    def __init__(self) -> None:
        self._requests: dict[InFlightKey, InFlightRequest] = {}
        self._begins: Watcher | None = None
        self._ends: Watcher | None = None

    def watched(self, begins: Watcher, ends: Watcher) -> None:
        """``begins`` and ``ends`` are called with the key of each request that others may join."""
        self._begins, self._ends = begins, ends

    def join(self, key: InFlightKey, priority: int) -> Reader | None:
        """A reader of an identical request, if there is one."""
        request = self._requests.get(key)
        if request is None or not request.suits(priority):
            return None
        return request.add_reader(has_joined=True)

    def replace(
        self, key: InFlightKey, opening: Coroutine[Any, Any, OpenAnswer], completed: Completed
    ) -> Reader | None:
        """Calls :meth:`InFlightRequest.replace` of the request under ``key``; a reader of it, or ``None``."""
        request = self._requests.get(key)
        if request is None or not request.replace(opening, completed):
            return None
        return request.add_reader()

    def start(
        self,
        key: InFlightKey | None,
        opening: Coroutine[Any, Any, OpenAnswer],
        keep_bytes: int,
        completed: Completed | None,
        *,
        opens_alone: bool,
        priority: int,
    ) -> Reader:
        """A new request; others may join it if it has a ``key``."""

        def forget(ended: InFlightRequest) -> None:
            if key is not None and self._requests.get(key) is ended:
                del self._requests[key]
                if self._ends is not None:
                    self._ends(key)

        request = InFlightRequest(
            Opening(opening, alone=opens_alone and key is None),
            keep_bytes,
            completed,
            forget,
            priority=priority,
        )
        if key is not None:
            self._requests[key] = request
        reader = request.add_reader()
        if key is not None and self._begins is not None:
            self._begins(key)
        return reader

    def answers(self) -> Iterator[tuple[InFlightKey, OpenAnswer]]:
        """Those that have begun."""
        for key, request in self._requests.items():
            if request.answer is not None:
                yield key, request.answer

    def __contains__(self, key: InFlightKey) -> bool:
        return key in self._requests

    def __len__(self) -> int:
        return len(self._requests)


def _close_if_open(opening: asyncio.Future[OpenAnswer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
