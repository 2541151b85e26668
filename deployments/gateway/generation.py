"""Chat and text completions: decide (admit, look up, route), execute (replay or relay), record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deployments.gateway.cache_client import CacheClient
from deployments.gateway.http import EVENT_STREAM, Exchange
from deployments.gateway.relay import Relay
from deployments.gateway.services import Services
from serve_app.auth import Identity
from serve_app.cache.controls import CacheControls, parse_controls
from serve_app.cache.entry import Hit, Lookup
from serve_app.cache.keys import CacheKey, cache_key
from serve_app.openai import replay
from serve_app.openai.answers import Answer, answer_from_json, answer_from_stream
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation


@dataclass(slots=True)
class Generation:
    """One generating request from admission to its record."""

    exchange: Exchange
    identity: Identity
    request: ParsedRequest
    key: CacheKey | None
    controls: CacheControls
    timeout_s: float
    cache_status: str = "bypass"
    lookup: Lookup = field(default_factory=Lookup)

    @property
    def may_store(self) -> bool:
        return self.key is not None and self.controls.write

    @property
    def hides_usage(self) -> bool:
        """The engine is asked for usage that the client did not ask for (see ``UsageFilter``)."""
        generation = self.request.generation
        return self.may_store and generation.wants_stream and not generation.wants_usage


class GenerationEndpoint:
    """``POST`` on one of the two generating endpoints."""

    def __init__(self, endpoint: Endpoint, services: Services, relay: Relay) -> None:
        self._endpoint = endpoint
        self._services = services
        self._relay = relay

    async def __call__(self, exchange: Exchange) -> None:
        generation = await self._admit(exchange)
        try:
            hit = await self._look_up(generation)
            if hit is not None:
                await self._replay(generation, hit)
            else:
                await self._generate(generation)
        finally:
            self._record(generation)

    async def _admit(self, exchange: Exchange) -> Generation:
        """Authenticate, read and parse once. Raises what the client did wrong."""
        with exchange.timeline.step("admit"):
            identity = self._services.identify(exchange)
            controls = parse_controls(exchange.headers)
            timeout_s = self._services.timeout_s(exchange)
            body = await exchange.read_body(self._services.settings.limits.max_body_bytes)
            request = parse_generation(self._endpoint, body)
            fingerprint = self._services.fingerprint(request.model)
            key = self._cache_key(request, identity, fingerprint)
            return Generation(exchange, identity, request, key, controls, timeout_s)

    def _cache_key(self, request: ParsedRequest, identity: Identity, fingerprint: str) -> CacheKey | None:
        if self._services.cache is None or request.model in self._services.uncached_models:
            return None
        return cache_key(request, identity.tenant, fingerprint)

    async def _look_up(self, generation: Generation) -> Hit | None:
        cache = self._services.cache
        if cache is None or generation.key is None:
            return None
        generation.cache_status = "miss"
        if not generation.controls.read:
            return None
        timeline = generation.exchange.timeline
        generation.lookup = await cache.look_up(generation.key, generation.controls, timeline)
        return generation.lookup.hit

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

    async def _generate(self, generation: Generation) -> None:
        """Relay the engine's answer while the client stays and the deadline allows."""
        exchange = generation.exchange
        exchange.response_headers["x-cache"] = generation.cache_status
        await exchange.run(self._relay_and_store(generation), generation.timeout_s)

    async def _relay_and_store(self, generation: Generation) -> None:
        body = _with_usage(generation.request) if generation.hides_usage else generation.request.body
        limit = self._record_limit(generation)
        recorded = await self._relay.generation(
            generation.exchange,
            generation.request,
            body,
            hide_usage=generation.hides_usage,
            record_limit=limit,
        )
        if recorded is not None and generation.may_store:
            self._store(generation, recorded)

    def _record_limit(self, generation: Generation) -> int:
        """Bytes of a response worth keeping: JSON and SSE framing around an entry's own limit."""
        cache = self._services.settings.cache
        return 64 * cache.max_entry_bytes if cache is not None and generation.may_store else 0

    def _store(self, generation: Generation, recorded: list[bytes]) -> None:
        answer = _read_answer(generation.request, recorded)
        cache: CacheClient | None = self._services.cache
        if answer is None or cache is None or generation.key is None:
            return
        start_ns = time.time_ns()
        cache.store(generation.key, generation.controls, answer, generation.lookup.vector)
        generation.exchange.timeline.add("store", start_ns)

    def _record(self, generation: Generation) -> None:
        """Attributes of the trace; steps and latencies are recorded for every exchange alike."""
        generation.exchange.attributes |= {
            "promptly.tenant": generation.identity.tenant,
            "promptly.cache": generation.cache_status,
            "gen_ai.request.model": generation.request.model,
        }


def _read_answer(request: ParsedRequest, recorded: list[bytes]) -> Answer | None:
    if request.generation.wants_stream:
        return answer_from_stream(request.endpoint, recorded)
    return answer_from_json(request.endpoint, b"".join(recorded))


def _with_usage(request: ParsedRequest) -> bytes:
    """The body with ``stream_options.include_usage`` set."""
    fields: dict[str, Any] = dict(request.fields)
    fields["stream_options"] = {**(fields.get("stream_options") or {}), "include_usage": True}
    return msgspec.json.encode(fields)


def _hit_headers(hit: Hit, exchange: Exchange) -> dict[str, str]:
    age = f"{hit.entry.age_s(time.time()):.0f}"
    headers = {"x-cache": hit.kind, "x-cache-age": age, "x-served-by": "cache"}
    if hit.similarity is not None:
        headers["x-cache-similarity"] = f"{hit.similarity:.4f}"
    return headers | {"server-timing": exchange.timeline.server_timing()}
