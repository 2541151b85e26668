"""Answers in flight that several clients may share.

There is no task between an engine and a client: whoever needs the next bytes first reads them for all.
A reader that is cancelled loses none (reading is cancel-safe) and another one reads on, so the client that
came first may leave as freely as any other. When the last reader leaves, the engine's request is aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from deployments.gateway.request.answer import Head, LiveAnswer
from serve_app.errors import PromptlyError, SlowReader

FlightKey = tuple[UUID, bool, bool]
"""The exact cache key, whether the answer is streamed, and whether it may fail over."""

Landed = Callable[[Head, list[bytes]], None]
"""Called once with a complete answer's bytes."""


class Flight:
    """One answer, its bytes so far, and its readers. ``opens_alone``: its one reader opens it when it first
    asks, which saves a round of the event loop; else it opens by itself, whoever comes and goes.

    ``keep_bytes``: so much is kept for joiners, for slow readers and for ``landed``; an answer that grows
    longer keeps only what its slowest reader still needs, and is recorded no more.
    """

    def __init__(
        self,
        opening: Coroutine[Any, Any, LiveAnswer],
        keep_bytes: int,
        landed: Landed | None,
        ended: Callable[[Flight], None],
        *,
        opens_alone: bool,
        priority: int,
    ) -> None:
        self._opening = opening if opens_alone else asyncio.ensure_future(opening)
        self._answer: LiveAnswer | None = None
        self._priority = priority
        self._keep_bytes = keep_bytes
        self._landed = landed
        self._ended_call = ended
        self._readers: set[Reader] = set()
        self._chunks: list[bytes] = []
        self._size = 0
        self._dropped = 0
        self._reading = False
        self._ended = False
        self._error: PromptlyError | None = None
        self._news: list[asyncio.Future[None]] = []

    @property
    def is_whole(self) -> bool:
        """It can be joined: everything so far is still here, and there is someone to read it."""
        return self._dropped == 0 and self._error is None and bool(self._readers)

    def suits(self, priority: int) -> bool:
        """Whoever is more urgent does not stand in line behind one who is less so."""
        return self.is_whole and (priority >= self._priority or self._answer is not None)

    def board(self) -> Reader:
        reader = Reader(self)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._end()

    async def begun(self) -> LiveAnswer:
        """The answer once its first bytes are there. Raises what opening it raised."""
        if self._answer is None:
            opening = self._opening
            self._answer = await (asyncio.shield(opening) if isinstance(opening, asyncio.Future) else opening)
        return self._answer

    async def chunk(self, position: int) -> bytes:
        """The chunk at ``position``; ``b""`` behind the last one.

        Raises:
            UpstreamFailed: the answer was cut.
            SlowReader: the chunk is no longer kept.
        """
        while True:
            if position < self._dropped:
                raise SlowReader(self._keep_bytes)
            if position < self._dropped + len(self._chunks):
                return self._chunks[position - self._dropped]
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await (self._hear() if self._reading else self._read())

    async def _read(self) -> None:
        """Read once for everybody."""
        answer = self._answer or await self.begun()
        self._reading = True
        try:
            chunk = await answer.read()
        except PromptlyError as error:
            self._error = error
        else:
            self._take(answer, chunk)
        finally:
            self._reading = False
            self._tell()

    def _take(self, answer: LiveAnswer, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._size += len(chunk)
            if self._size > self._keep_bytes:
                self._forget()
            return
        self._ended = True
        answer.close()  # the engine is done: its place is free however slowly the readers read
        if self._landed is not None and self._dropped == 0:
            self._landed(answer.head, self._chunks)

    def _forget(self) -> None:
        """Drop what every reader has; then, where that is not enough, what only the slowest still need."""
        needed = min((reader.position for reader in self._readers), default=0)
        while self._chunks and (self._dropped < needed or self._size > self._keep_bytes):
            if len(self._chunks) == 1 and self._dropped >= needed:
                return  # the newest chunk, whatever its size, is what the fastest reader waits for
            self._size -= len(self._chunks.pop(0))
            self._dropped += 1

    def _end(self) -> None:
        """Nobody reads any more. What still opens is aborted, what is open is closed."""
        self._ended_call(self)
        if self._answer is not None:
            self._answer.close()
        elif isinstance(self._opening, asyncio.Future):
            self._opening.cancel()
            self._opening.add_done_callback(_close_if_open)
        else:
            self._opening.close()

    async def _hear(self) -> None:
        news = asyncio.get_running_loop().create_future()
        self._news.append(news)
        await news

    def _tell(self) -> None:
        news, self._news = self._news, []
        for future in news:
            if not future.done():
                future.set_result(None)


class Reader:
    """One client's place in an answer."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self.position = 0

    async def begin(self) -> Head:
        """Raises what opening the answer raised."""
        return (await self._flight.begun()).head

    async def read(self) -> bytes:
        """The next bytes for this client; ``b""`` at the end. Raises: as :meth:`Flight.chunk`."""
        chunk = await self._flight.chunk(self.position)
        self.position += 1
        return chunk

    def close(self) -> None:
        """May be called again."""
        self._flight.leave(self)


class Flights:
    """The in-flight tier of one gateway: flights that may be joined, by key."""

    def __init__(self) -> None:
        self._flights: dict[FlightKey, Flight] = {}

    def join(self, key: FlightKey, priority: int) -> Reader | None:
        """A place in the flight of an identical request, if there is one."""
        flight = self._flights.get(key)
        return flight.board() if flight is not None and flight.suits(priority) else None

    def start(
        self,
        key: FlightKey | None,
        opening: Coroutine[Any, Any, LiveAnswer],
        keep_bytes: int,
        landed: Landed | None,
        *,
        opens_alone: bool,
        priority: int,
    ) -> Reader:
        """A flight of its own; others may join it if it has a ``key``."""

        def forget(ended: Flight) -> None:
            if key is not None and self._flights.get(key) is ended:
                del self._flights[key]

        flight = Flight(
            opening, keep_bytes, landed, forget, opens_alone=opens_alone and key is None, priority=priority
        )
        if key is not None:
            self._flights[key] = flight
        return flight.board()

    def __len__(self) -> int:
        return len(self._flights)


def _close_if_open(opening: asyncio.Future[LiveAnswer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
