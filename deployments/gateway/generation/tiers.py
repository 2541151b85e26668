"""Where an answer may come from. Each tier finds one or passes; the first that finds one answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from deployments.gateway.generation.asked import Asked
from deployments.gateway.generation.judge import ModelJudge
from deployments.gateway.generation.replay import hit_headers, replay_of
from deployments.gateway.lookup.in_flight import InFlightRequests, Reader
from deployments.gateway.lookup.look_ups import LookUps
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.writes import Writes
from deployments.gateway.request.answer import Answer, OpenAnswer
from deployments.gateway.request.call import Call
from serve_app.cache.entry import Doubt, Hit
from serve_app.cache.keys import CacheKey
from serve_app.errors import BudgetEnded, RateLimited
from serve_app.gateways.announced import Announced
from serve_app.openai.usage import Measured, TokenCounts
from serve_app.traffic import Traffic

JOINED = "joined"

CallFor = Callable[[Asked], Call]
"""Makes the call that an engine would get."""


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, and what ``headers`` tell the client of where it came from. ``stale``: it has expired,
    and a fresh one should replace it."""

    answer: Answer
    headers: Mapping[str, str]
    stale: bool = False

    @property
    def cache_status(self) -> str:
        return self.headers["x-cache"]


class Tier(Protocol):
    async def find(self, asked: Asked) -> Found | None:
        """An answer, or ``None``: the next tier is asked."""
        ...


async def first_of(tiers: Sequence[Tier], asked: Asked) -> Found:
    """What the first tier that has an answer gives. The last tier must always have one."""
    for tier in tiers:
        found = await tier.find(asked)
        if found is not None:
            return found
    raise AssertionError("the last tier always answers")


class MemoryTier:
    """Answers to identical requests, in this gateway's memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def find(self, asked: Asked) -> Found | None:
        if asked.key is None or not asked.controls.read:
            return None
        hit = self._memory.get(asked.key, asked.controls, asked.exchange.timeline)
        return None if hit is None else found_in_cache(asked, hit)


class Joined:
    """A place in the answer to another client's request. Where that is refused, or ended before its first
    byte, at its own limits, another place; ``join`` finds none where nobody else asks by now, and then
    ``ask`` begins the request's own answer."""

    def __init__(self, reader: Reader, join: Callable[[], Reader | None], ask: Callable[[], Answer]) -> None:
        self._join = join
        self._ask = ask
        self._answer: Answer = reader

    async def begin(self) -> OpenAnswer:
        joined: Reader | None
        while True:
            try:
                return await self._answer.begin()
            except (RateLimited, BudgetEnded):
                self._answer.close()
            joined = self._join()
            if joined is None:
                break
            self._answer = joined
        self._answer = self._ask()
        return await self._answer.begin()

    def close(self) -> None:
        self._answer.close()


class InFlightTier:
    """The stream of an identical request in flight. ``ask``: a member's own answer."""

    def __init__(self, in_flight: InFlightRequests, traffic: Traffic, ask: Callable[[Asked], Answer]) -> None:
        self._in_flight = in_flight
        self._traffic = traffic
        self._ask = ask

    async def find(self, asked: Asked) -> Found | None:
        reader = self._join(asked)
        if reader is None:
            return None
        self._traffic.joined += 1
        own = partial(self._ask_itself, asked, asked.cache_status)
        return found_at_engine(asked, Joined(reader, partial(self._join, asked), own), JOINED)

    def _join(self, asked: Asked) -> Reader | None:
        key = asked.in_flight_key
        return None if key is None else self._in_flight.join(key, asked.priority)

    def _ask_itself(self, asked: Asked, status: str) -> Answer:
        """It is no joined request any more, ``status`` says what it was before."""
        asked.cache_status = asked.exchange.response_headers["x-cache"] = status
        return self._ask(asked)


class SharedWithOthers(Protocol):
    """Requests that several gateways share."""

    def announce(self, asked: Asked) -> Announced | None: ...

    def withdraw(self, asked: Asked) -> None: ...

    async def find(self, asked: Asked, gateway: str) -> Found | None: ...


class StoreTier:
    """The store: the entry of an identical request, else a near one that the cache's decision accepts. Where
    the decision is in doubt, the served model may be asked. The look-up also says whether another gateway is
    answering an identical request: ``elsewhere`` joins that."""

    def __init__(
        self,
        look_ups: LookUps,
        writes: Writes,
        judge: ModelJudge | None,
        call_for: CallFor,
        elsewhere: SharedWithOthers | None = None,
    ) -> None:
        self._elsewhere = elsewhere
        self._look_ups = look_ups
        self._writes = writes
        self._judge = judge
        self._call_for = call_for

    async def find(self, asked: Asked) -> Found | None:
        if asked.key is None or not asked.controls.read:
            return None
        elsewhere = self._elsewhere
        announced = None if elsewhere is None else elsewhere.announce(asked)
        looked_up = await self._look_ups.find(
            asked.key, asked.controls, asked.exchange.timeline, asked.keep_vector, announced
        )
        if isinstance(looked_up, Hit):
            if elsewhere is not None:
                elsewhere.withdraw(asked)
            return found_in_cache(asked, looked_up)
        asked.probe, asked.refused = looked_up.probe, looked_up.reason
        if elsewhere is not None and looked_up.answered_at is not None:
            found = await elsewhere.find(asked, looked_up.answered_at)
            if found is not None:
                return found
        return await self._ask_model(asked, asked.key, looked_up.doubt)

    async def _ask_model(self, asked: Asked, key: CacheKey, doubt: Doubt | None) -> Found | None:
        if self._judge is None or doubt is None:
            return None
        with asked.exchange.timeline.step("ask-model"):
            serves = await self._judge.serves(doubt, key.text, self._call_for(asked))
        if serves is None:
            return None
        self._writes.add_verdict(key.partition, doubt.entry.entry_id, key.text, serves)
        hit = self._look_ups.judged(doubt, serves)
        asked.refused = None if hit is not None else "model"
        return None if hit is None else found_in_cache(asked, hit)


def found_in_cache(asked: Asked, hit: Hit) -> Found:
    usage = hit.entry.answer.usage
    tokens = TokenCounts(usage.prompt_tokens, usage.completion_tokens)
    asked.exchange.facts.measured = Measured(tokens, "stop")
    return Found(replay_of(asked, hit), hit_headers(hit), hit.stale)


def found_at_engine(asked: Asked, answer: Answer, status: str) -> Found:
    headers = {"x-cache": status}
    if asked.refused is not None:
        headers["x-cache-refused"] = asked.refused
    return Found(answer, headers)
