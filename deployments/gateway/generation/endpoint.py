"""Chat and text completions, and the dialects of chats: admit a request, find an answer, relay it, record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deployments.gateway.experiments.shadows import Shadow, Shadows
from deployments.gateway.generation.admit import Admit, Read
from deployments.gateway.generation.asked import Asked, Shadowed, in_its_own_words
from deployments.gateway.generation.engine_tier import EngineTier
from deployments.gateway.generation.judge import ModelJudge
from deployments.gateway.generation.race import Race
from deployments.gateway.generation.record import record
from deployments.gateway.generation.replay import NEAR_ENTRY
from deployments.gateway.generation.tiers import (
    JOINED,
    InFlightTier,
    MemoryTier,
    SharedWithOthers,
    StoreTier,
    Tier,
    first_of,
)
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.guardrails.streams import GuardedAnswer
from deployments.gateway.lookup.in_flight import InFlightRequests
from deployments.gateway.lookup.refreshes import Refreshes
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.answer import Answer
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.relay import relay
from serve_app.guardrails import Stage
from serve_app.monitoring.intake import HITS
from serve_app.openai.requests import Endpoint
from serve_app.openai.usage import UsageFilter
from serve_app.settings import CacheSettings
from serve_app.traffic import Traffic


class Noted(Protocol):
    """What looks at answers that people may judge, and at those that are captured."""

    def near_hit(self, tenant: str, request_id: str, text: str) -> None:
        """An entry that was made for another text answers this one."""

    def copied(self, asked: Asked, answer: Answer) -> Answer:
        """The answer, of which a copy may be kept as it passes."""
        ...


class GenerationEndpoint:
    """``POST`` on one of the two generating endpoints; or, with ``read``, on the path of a dialect whose
    requests that endpoint answers."""

    def __init__(
        self,
        endpoint: Endpoint,
        admit: Admit,
        *,
        tiers: Sequence[Tier],
        engine: EngineTier,
        refreshes: Refreshes,
        traffic: Traffic,
        keep_alive_s: float,
        read: Read | None = None,
        shadows: Shadows,
        guards: Guards | None = None,
        noted: Noted | None = None,
    ) -> None:
        self._guards = guards
        self._noted = noted
        self._shadows = shadows
        self._endpoint = endpoint
        self._read = read
        self._admit = admit
        self._tiers = tiers
        self._engine = engine
        self._refreshes = refreshes
        self._traffic = traffic
        self._keep_alive_s = keep_alive_s

    async def __call__(self, exchange: Exchange) -> None:
        asked = await self._admit(exchange, self._endpoint, self._read)
        if self._keep_alive_s and asked.request.generation.wants_stream:
            exchange.keep_alive(self._keep_alive_s)
        try:
            with in_its_own_words(asked.reading):
                await exchange.run(self._answer(asked), asked.timeout_s)
            if asked.shadowed is not None:
                self._shadow(asked, asked.shadowed)
        finally:
            record(asked)
            await exchange.end_waiting()

    async def _answer(self, asked: Asked) -> None:
        found = await first_of(self._tiers, asked)
        asked.cache_status = found.cache_status
        asked.exchange.response_headers |= found.headers
        if self._noted is not None and NEAR_ENTRY in found.headers and asked.key is not None:
            self._noted.near_hit(asked.identity.tenant, asked.exchange.request_id, asked.key.text)
        if found.stale:
            self._refresh(asked)
        exchange, began_ns = asked.exchange, asked.exchange.timeline.clock()
        answer = found.answer if self._guards is None else _guarded(self._guards, asked, found.answer)
        if self._noted is not None:
            answer = self._noted.copied(asked, answer)
        usage = UsageFilter(hides_usage=asked.hides_usage, shows_metrics=exchange.asks_for_timing)
        try:
            cut = await relay(exchange, answer, usage=usage, writer=asked.writer, ending=asked.ending)
        finally:
            if found.cache_status == JOINED:
                exchange.timeline.add("joined", began_ns)
        self._traffic.cut += cut is not None

    def _shadow(self, asked: Asked, shadowed: Shadowed) -> None:
        """The client has its answer: if an engine gave it, the experiment's candidate is asked the same."""
        exchange = asked.exchange
        if exchange.status != 200 or exchange.facts.error is not None or asked.cache_status in HITS:
            return
        shadow = Shadow(
            shadowed.assigned,
            shadowed.model,
            shadowed.size,
            lambda: self._engine.shadow_call(asked, shadowed.make()),
        )
        timeline = exchange.timeline
        first = timeline.first_byte_ns if exchange.facts.streamed else 0
        ttft_ms = (first - timeline.start_ns) / 1e6 if first else None
        self._shadows.offer(shadow, ttft_ms=ttft_ms, e2e_ms=timeline.elapsed_ms())

    def _refresh(self, asked: Asked) -> None:
        """Ask an engine, if one has room, for an answer that replaces a stale one. No client waits for it."""
        if asked.key is None or asked.key.entry_id in self._refreshes or not asked.controls.write:
            return
        if self._engine.has_room(asked):
            self._traffic.refreshed += 1
            answer, account = self._engine.refresh(asked)
            ended = None if account is None else account.ended
            self._refreshes.start(asked.key.entry_id, answer, asked.timeout_s, ended)


def _guarded(guards: Guards, asked: Asked, answer: Answer) -> Answer:
    """The answer as this client's guards let it pass, wherever it comes from."""
    names = (str(asked.request.fields["model"]), asked.request.model)
    tenant, path = asked.identity.tenant, asked.exchange.path
    held = guards.held(Stage.AFTER, models=names, tenant=tenant, path=path)
    return answer if held is None else GuardedAnswer(answer, held)


def cache_tiers(
    settings: CacheSettings | None,
    cache: CacheClient | None,
    engine: EngineTier,
    *,
    dispatcher: Dispatcher,
    in_flight: InFlightRequests,
    traffic: Traffic,
    elsewhere: SharedWithOthers | None = None,
) -> list[Tier]:
    """The tiers before the engine. In-flight requests are tried twice: an identical request may have begun
    during the look-up in the store. Without a cache there are none."""
    if settings is None or cache is None:
        return []
    judge = None if settings.ask_model is None else ModelJudge(settings.ask_model, dispatcher)
    store = StoreTier(cache.look_ups, cache.writes, judge, engine.call_for, elsewhere)
    joined = InFlightTier(in_flight, traffic, engine.start)
    races: list[Tier] = [Race(store, engine, traffic)] if settings.race else []
    return [MemoryTier(cache.memory), joined, *races, store, joined]
