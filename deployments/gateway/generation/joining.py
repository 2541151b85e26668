"""A request that another gateway is answering is joined there. If that gateway dies, an engine is asked, and
told what the answer was so far, where that is known."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from deployments.gateway.generation.asked import Asked
from deployments.gateway.generation.engine_tier import EngineTier
from deployments.gateway.generation.record import Recorder
from deployments.gateway.generation.tiers import JOINED, Found, found_at_engine, found_in_cache
from deployments.gateway.lookup.beginnings import KeptBeginnings
from deployments.gateway.lookup.elsewhere import Elsewhere
from deployments.gateway.lookup.in_flight import Completed, InFlightKey, Reader
from deployments.gateway.lookup.shared_stream import SharedAnswer
from deployments.gateway.request.answer import Head, OpenAnswer
from deployments.gateway.send.dispatch import Dispatcher
from serve_app.cache.entry import Hit
from serve_app.gateways.announced import Announced


class JoinsElsewhere:
    """``elsewhere``: the other gateways' requests; ``engine`` says what is asked where one of these is lost.
    ``keep_bytes`` of an answer are kept for others who join it, and for that case."""

    def __init__(
        self,
        elsewhere: Elsewhere,
        engine: EngineTier,
        recorder: Recorder,
        *,
        beginnings: KeptBeginnings | None,
        dispatcher: Dispatcher,
        keep_bytes: int,
    ) -> None:
        self._elsewhere = elsewhere
        self._engine = engine
        self._in_flight = elsewhere.in_flight
        self._recorder = recorder
        self._beginnings = beginnings
        self._traffic = dispatcher.traffic
        self._dispatcher = dispatcher
        self._keep_bytes = keep_bytes

    def announce(self, asked: Asked) -> Announced | None:
        """What the look-up tells of the request."""
        partition = "" if asked.key is None else asked.key.partition
        return self._elsewhere.announce(asked.in_flight_key, partition)

    def withdraw(self, asked: Asked) -> None:
        """The look-up has found an answer."""
        self._elsewhere.withdraw(asked.in_flight_key)

    async def find(self, asked: Asked, gateway: str) -> Found | None:
        """The answer that ``gateway`` has; ``None``: it has none any more."""
        key = asked.in_flight_key
        if key is None:
            return None
        stream = await self._elsewhere.join(key, gateway, asked.priority)
        if isinstance(stream, Hit):
            self._elsewhere.withdraw(key)
            taken = self._elsewhere.memory.take_in(stream, asked.controls)
            return found_in_cache(asked, stream) if taken else None
        if stream is None:
            return await self._going_on(asked, key, gateway)
        begun: list[Reader] = []
        answer = SharedAnswer(stream, partial(self._again, asked, key, gateway, begun), self._keep_bytes)
        reader = self._reader(asked, key, answer.open(), partial(self._completed, asked, answer))
        if reader is None:
            stream.close()
            return None
        begun.append(reader)
        self._elsewhere.joined(key)
        if asked.exchange.account is not None:
            asked.exchange.account.members.joined()
        self._traffic.joined += 1
        return found_at_engine(asked, reader, JOINED)

    def _reader(
        self, asked: Asked, key: InFlightKey, opening: Coroutine[Any, Any, OpenAnswer], completed: Completed
    ) -> Reader | None:
        """It replaces an own request that raced the look-up, for all who wait for that; ``None``: that one
        has begun."""
        if key not in self._in_flight:
            return self._in_flight.start(
                key, opening, self._keep_bytes, completed, opens_alone=False, priority=asked.priority
            )
        reader = self._in_flight.replace(key, opening, completed)
        if reader is None:
            opening.close()
        return reader

    async def _going_on(self, asked: Asked, key: InFlightKey, gateway: str) -> Found | None:
        """The answer that ``gateway`` was sending when it was lost, from its beginning: an engine is told the
        tokens that are known, and goes on. It is this gateway's own request from now on. ``None``: no
        beginning is known, or no engine can be told."""
        call = self._engine.call_for(asked)
        if self._beginnings is None or call.resumes is None or not call.resumes.as_chat:
            return None
        if not self._dispatcher.goes_on(call.model):
            return None
        told = await self._beginnings.of(key, gateway)
        if not told:
            return None
        opening = self._dispatcher.open(call.going_on(told))
        reader = self._reader(asked, key, opening, partial(self._recorder.store, asked))
        if reader is None:
            return None
        if asked.exchange.account is not None:
            asked.exchange.account.members.goes_on = reader.goes_on
        self._traffic.continued += 1
        return found_at_engine(asked, reader, asked.cache_status)

    async def _again(self, asked: Asked, key: InFlightKey, gateway: str, begun: list[Reader]) -> OpenAnswer:
        """The answer's gateway is lost. The client that joined first here pays, as if it had asked first."""
        self._traffic.failovers += 1
        self._elsewhere.took_over(key, gateway)
        if asked.exchange.account is not None:
            asked.exchange.account.members.own(begun[0].goes_on)
        return await self._dispatcher.open(self._engine.call_for(asked))

    def _completed(self, asked: Asked, answer: SharedAnswer, head: Head, recorded: list[bytes]) -> None:
        """The gateway that asked an engine stores the answer; all others remember it."""
        self._recorder.store(asked, head, recorded, writes=answer.is_own)
