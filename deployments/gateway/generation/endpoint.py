"""Chat and text completions: decide (admit, look up, join, start), execute (replay or relay), record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from deployments.gateway.generation.model_judge import ModelJudge
from deployments.gateway.lookup.flights import FlightKey, Flights, Reader
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.call import Call, deadline_of, forwarded_headers, target_of
from deployments.gateway.request.exchange import EVENT_STREAM, Exchange
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.live_answer import LiveAnswer
from deployments.gateway.send.relay import relay
from deployments.gateway.services import Services
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.cache.entry import Doubt, Hit, Probe
from serve_app.cache.keys import CacheKey, cache_key
from serve_app.model_choice.chooser import ModelChooser
from serve_app.openai import replay
from serve_app.openai.answers import Answer, answer_from_json, answer_from_stream
from serve_app.openai.bounds import refuse_excess
from serve_app.openai.continuation import obstacle
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation
from serve_app.request.auth import Identity
from serve_app.request.cache_controls import CacheControls, parse_controls
from serve_app.request.failover import wants_failover
from serve_app.settings import Settings
from serve_app.speculation.sampling import refuse_unsupported

MODEL_HEADER = "x-model"
"""The model that answers, where the request named an alias or left the choice to us."""

SAFE_IN_HEADER = "/:@+=,"


@dataclass(slots=True)
class Generation:
    """One generating request from admission to its record. What a look-up leaves: ``vector``, the text's
    embedding, kept for storing the answer; ``probe``, a near entry to compare the answer with; ``refused``,
    why that one was not given."""

    exchange: Exchange
    identity: Identity
    request: ParsedRequest
    key: CacheKey | None
    controls: CacheControls
    priority: int
    failover: bool
    timeout_s: float
    salt: str | None
    session: str | None
    weight: int
    cache_status: str = "bypass"
    vector: bytes | None = None
    probe: Probe | None = None
    refused: str | None = None

    @property
    def may_store(self) -> bool:
        return self.key is not None and self.controls.write

    @property
    def flight_key(self) -> FlightKey | None:
        """``None`` for an answer of this request alone: it is not cacheable, or wants a fresh one."""
        if self.key is None or not (self.controls.read and self.controls.write):
            return None
        return self.key.entry_id, self.request.generation.wants_stream, self.failover

    @property
    def asks_for_usage(self) -> bool:
        """The engine is asked for usage on every stream that may be stored: an entry needs it."""
        return self.may_store and self.request.generation.wants_stream

    @property
    def hides_usage(self) -> bool:
        """The client did not ask for the usage that the engine was asked for (see ``UsageFilter``)."""
        return self.asks_for_usage and not self.request.generation.wants_usage


class GenerationEndpoint:
    """``POST`` on one of the two generating endpoints."""

    def __init__(
        self,
        endpoint: Endpoint,
        services: Services,
        dispatcher: Dispatcher,
        flights: Flights,
        tracer: RequestTracer | None,
    ) -> None:
        self._endpoint = endpoint
        self._services = services
        self._chooser = ModelChooser(services.settings, services.fleet)
        self._thresholds = _thresholds(services.settings)
        self._speculating = _speculating(services.settings)
        self._dispatcher = dispatcher
        self._flights = flights
        self._tracer = tracer
        asking = None if services.settings.cache is None else services.settings.cache.ask_model
        self._judge = None if asking is None else ModelJudge(asking, dispatcher)

    async def __call__(self, exchange: Exchange) -> None:
        generation = await self._admit(exchange)
        try:
            await exchange.run(self._answer(generation), generation.timeout_s)
        finally:
            self._record(generation)

    async def _admit(self, exchange: Exchange) -> Generation:
        """Authenticate, read and parse once. Raises what the client did wrong."""
        with exchange.timeline.step("admit"):
            services = self._services
            identity = services.identify(exchange)
            controls = parse_controls(exchange.headers)
            priority = request_priority(exchange.headers, identity.best_priority)
            failover = wants_failover(exchange.headers, services.settings.gateway.failover)
            timeout_s = services.timeout_s(exchange)
            body = await services.bodies.read(exchange, identity.tenant)
            asked = parse_generation(self._endpoint, body)
            weight = refuse_excess(asked.fields, services.settings.limits)
            request = self._chosen(exchange, asked)
            controls = self._with_threshold(controls, request.model)
            fingerprint = services.fingerprint(request.model)
            services.require_offered(exchange.path, request.model)
            key = self._cache_key(request, identity, fingerprint)
            return Generation(
                exchange,
                identity,
                request,
                key,
                controls,
                priority,
                failover,
                timeout_s,
                salt=services.prefix_salt(identity, request.fields),
                session=services.session(identity, exchange),
                weight=weight,
            )

    def _chosen(self, exchange: Exchange, asked: ParsedRequest) -> ParsedRequest:
        """The request under the own name of the model that answers; a client that named another is told."""
        chosen = self._chooser.choose(asked, exchange.headers, time.monotonic())
        if chosen.to_start is not None:
            self._dispatcher.start(chosen.to_start)
        request = chosen.request
        if self._chooser.names.model_of(request.model) in self._speculating:
            refuse_unsupported(request.fields)
        if request.model != asked.model:
            exchange.response_headers[MODEL_HEADER] = quote(request.model, safe=SAFE_IN_HEADER)
        return request

    def _with_threshold(self, controls: CacheControls, model: str) -> CacheControls:
        """What a request asks for goes before what its model's settings say."""
        least = self._thresholds.get(self._chooser.names.model_of(model))
        if controls.threshold is not None or least is None:
            return controls
        return replace(controls, threshold=least)

    def _cache_key(self, request: ParsedRequest, identity: Identity, fingerprint: str) -> CacheKey | None:
        model = self._chooser.names.model_of(request.model)
        settings = self._services.settings.cache
        if settings is None or self._services.cache is None or model in self._services.uncached_models:
            return None
        return cache_key(request, identity.tenant, fingerprint, settings.partition_by)

    async def _answer(self, generation: Generation) -> None:
        """Decide what answers, and let it."""
        found = await self._decide(generation)
        if isinstance(found, Hit):
            if found.stale:
                self._refresh(generation)
            await self._replay(generation, found)
        else:
            await self._relay(generation, found)

    async def _decide(self, generation: Generation) -> Hit | Reader:
        """The first tier that can answer: memory, an identical request in flight, the store, an engine.

        The look-up goes beside the engine while the fleet has room, before it otherwise.
        """
        cache, key = self._services.cache, generation.key
        if cache is None or key is None:
            return self._start(generation)
        generation.cache_status = "miss"
        if not generation.controls.read:
            return self._start(generation)
        hit = cache.exact(key, generation.controls, generation.exchange.timeline)
        if hit is not None:
            return hit
        joined = self._join(generation)
        if joined is not None:
            return joined
        if self._services.settings.cache_races and self._dispatcher.has_room(generation.request.model):
            return await self._race(generation, cache, key)
        hit = await self._look_up(generation, cache, key)
        return hit or self._join(generation) or self._start(generation)

    def _join(self, generation: Generation) -> Reader | None:
        """A place in the stream of an identical request."""
        key = generation.flight_key
        reader = self._flights.join(key, generation.priority) if key is not None else None
        if reader is not None:
            generation.cache_status = "joined"
            self._services.traffic.joined += 1
        return reader

    async def _look_up(self, generation: Generation, cache: CacheClient, key: CacheKey) -> Hit | None:
        def keep(vector: bytes) -> None:
            generation.vector = vector

        found = await cache.look_up(key, generation.controls, generation.exchange.timeline, keep)
        if isinstance(found, Hit):
            return found
        generation.probe, generation.refused = found.probe, found.reason
        return await self._ask_model(generation, cache, key, found.doubt)

    async def _ask_model(
        self, generation: Generation, cache: CacheClient, key: CacheKey, doubt: Doubt | None
    ) -> Hit | None:
        """Where the verifier is not sure, the served model may say that a near entry serves."""
        if self._judge is None or doubt is None:
            return None
        with generation.exchange.timeline.step("ask-model"):
            serves = await self._judge.serves(doubt, key.text, self._call(generation))
        if serves is None:
            return None
        hit = cache.judged(doubt, key.text, serves)
        generation.refused = None if hit is not None else "model"
        return hit

    async def _race(self, generation: Generation, cache: CacheClient, key: CacheKey) -> Hit | Reader:
        """Look-up and engine at once; the first with something to say wins, the other is cancelled."""
        self._services.traffic.raced += 1
        reader = self._start(generation, races=True)
        try:
            hit = await self._first_to_speak(reader, self._look_up(generation, cache, key))
        except BaseException:
            reader.leave()
            raise
        if hit is None:
            return reader
        self._services.traffic.race_hits += 1
        reader.leave()
        return hit

    async def _first_to_speak(
        self, reader: Reader, looking_up: Coroutine[Any, Any, Hit | None]
    ) -> Hit | None:
        """The hit, if it comes before the engine's first bytes or in their place."""
        lookup, begun = asyncio.ensure_future(looking_up), asyncio.ensure_future(reader.begun())
        try:
            await asyncio.wait({lookup, begun}, return_when=asyncio.FIRST_COMPLETED)
            return None if begun.done() and begun.exception() is None else await lookup
        finally:
            lookup.cancel()
            begun.cancel()
            await asyncio.gather(lookup, begun, return_exceptions=True)

    def _start(self, generation: Generation, *, races: bool = False) -> Reader:
        """Ask an engine. Others may join where an identical request could be answered alike."""
        settings = self._services.settings
        key = generation.flight_key if settings.cache_joins else None
        keep = settings.limits.max_stream_buffer_bytes if generation.may_store else 0
        opening = self._dispatcher.open(self._call(generation))
        landed = partial(self._store, generation) if generation.may_store else None
        return self._flights.start(
            key, opening, keep, landed, opens_alone=not races, priority=generation.priority
        )

    def _call(self, generation: Generation) -> Call:
        exchange, request = generation.exchange, generation.request
        salt = generation.salt
        model = self._chooser.names.model_of(request.model)
        return Call(
            model=request.model,
            method=exchange.method,
            path=exchange.path,
            target=target_of(exchange),
            body=request.body,
            fields=request.fields,
            headers=forwarded_headers(exchange, self._tracer),
            routing=self._services.routers[model].describe(request, generation.session, salt),
            priority=generation.priority,
            deadline=deadline_of(exchange, generation.timeout_s),
            timeline=exchange.timeline,
            request=request,
            failover=generation.failover,
            include_usage=generation.asks_for_usage,
            tracks_tokens=generation.failover and obstacle(request) is None,
            salt=salt,
            best_priority=generation.identity.best_priority,
            tenant=generation.identity.tenant,
            weight=generation.weight,
        )

    async def _relay(self, generation: Generation, reader: Reader) -> None:
        exchange = generation.exchange
        exchange.response_headers["x-cache"] = generation.cache_status
        if generation.refused is not None:
            exchange.response_headers["x-cache-refused"] = generation.refused
        try:
            answer = await reader.begun()
            cut = await relay(exchange, answer, reader, hide_usage=generation.hides_usage)
            self._services.traffic.cut += cut is not None
        finally:
            reader.leave()

    async def _replay(self, generation: Generation, hit: Hit) -> None:
        """Answer from the cache, in the shape that was asked for."""
        exchange, request = generation.exchange, generation.request
        generation.cache_status = hit.kind
        exchange.response_headers |= _hit_headers(hit, exchange)
        answer, created = hit.entry.answer, int(time.time())
        if not request.generation.wants_stream:
            body = replay.as_json(answer, request.endpoint, exchange.request_id, created)
            await exchange.respond(200, body)
            return
        events = replay.as_stream(
            answer,
            request.endpoint,
            exchange.request_id,
            created,
            with_usage=request.generation.wants_usage,
        )
        await exchange.start(200, EVENT_STREAM)
        await exchange.write(b"".join(events), more=False)

    def _refresh(self, generation: Generation) -> None:
        """Ask an engine beside the client for the answer that takes a stale one's place, if there is room."""
        key, refreshes = generation.key, self._services.refreshes
        if key is None or key.entry_id in refreshes or not generation.controls.write:
            return
        if self._dispatcher.has_room(generation.request.model):
            self._services.traffic.refreshed += 1
            refreshes.start(key.entry_id, self._start(generation), generation.timeout_s)

    def _store(self, generation: Generation, answer: LiveAnswer, recorded: list[bytes]) -> None:
        """Queue a complete answer for the store, also when the client that asked first has left."""
        cache, key = self._services.cache, generation.key
        if cache is None or key is None or answer.status != 200:
            return
        read = _read_answer(generation.request, recorded)
        if read is None:
            return
        start_ns = time.time_ns()
        headers = generation.exchange.headers
        cache.store(key, generation.controls, headers, read, generation.vector)
        if generation.probe is not None:
            cache.compare(generation.probe, read)
        generation.exchange.timeline.add("store", start_ns)

    def _record(self, generation: Generation) -> None:
        """Attributes of the trace; steps and latencies are recorded for every exchange alike."""
        generation.exchange.attributes |= {
            "promptly.tenant": generation.identity.tenant,
            "promptly.cache": generation.cache_status,
            "gen_ai.request.model": generation.request.model,
        }


def _thresholds(settings: Settings) -> dict[str, float]:
    """By model, where one has its own."""
    thresholds = {model.id: model.cache_threshold for model in settings.models}
    return {model: least for model, least in thresholds.items() if least is not None}


def _speculating(settings: Settings) -> frozenset[str]:
    """The models whose members all decode speculatively; an upstream of ours or a vendor's may not."""
    engines = {model.id: model.engine for model in settings.models if not model.upstreams}
    return frozenset(model for model, engine in engines.items() if engine and engine.speculation)


def _read_answer(request: ParsedRequest, recorded: list[bytes]) -> Answer | None:
    if request.generation.wants_stream:
        return answer_from_stream(request.endpoint, recorded)
    return answer_from_json(request.endpoint, b"".join(recorded))


def _hit_headers(hit: Hit, exchange: Exchange) -> dict[str, str]:
    age = f"{hit.entry.age_s(time.time()):.0f}"
    headers = {"x-cache": hit.kind, "x-cache-age": age, "x-served-by": "cache"}
    if hit.stale:
        headers["x-cache-stale"] = "true"
    if hit.similarity is not None:
        headers["x-cache-similarity"] = f"{hit.similarity:.4f}"
        headers["x-cache-entry"] = str(hit.entry.entry_id)
    if hit.score is not None:
        headers["x-cache-score"] = f"{hit.score:.3f}"
    return headers | exchange.server_timing()
