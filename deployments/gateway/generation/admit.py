"""Admission of a request: read and check its body, choose the model."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from deployments.gateway.generation.asked import Asked, in_its_own_words
from deployments.gateway.generation.drawing import Drawing, Drawn, Raw
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.request.bodies import Bodies, let_others
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.images import Images
from serve_app.admission import request_priority
from serve_app.cache.keys import CacheKey, cache_key
from serve_app.dialects import Reading, Writer
from serve_app.guardrails import Stage
from serve_app.model_choice.chooser import ModelChooser
from serve_app.model_choice.names import under
from serve_app.model_choice.offers import Offers
from serve_app.openai.bounds import refuse_excess, refuse_large
from serve_app.openai.requests import (
    Endpoint,
    ParsedRequest,
    generation_from,
    parse_json,
)
from serve_app.openai.tools import calls_tools, refuse_tools
from serve_app.request.auth import Identity, require_model
from serve_app.request.cache_controls import CacheControls, parse_controls
from serve_app.request.deadline import request_timeout_s
from serve_app.request.failover import wants_failover
from serve_app.request.prefix_salt import PrefixSalts
from serve_app.request.tenant_marks import TenantMarks
from serve_app.routing import named_session
from serve_app.settings import LimitSettings, Settings
from serve_app.speculation.sampling import refuse_unsupported

MODEL_HEADER = "x-model"
"""The model that answers, where the request named an alias or an auto model."""

SAFE_IN_HEADER = "/:@+=,"

Read = Callable[[Exchange, Identity, Mapping[str, Any]], Awaitable[Reading]]
"""Reads a decoded body in a client's dialect. It may load what the request refers to.
Raises: PromptlyError."""


class Admit:
    """Reads and parses a request once. ``wake`` is called with a model that is scaled to zero;
    ``takes_tools``: whether a model's members read tool calls. ``caches``: this gateway has a cache. It is
    one class because the order of the checks is its whole subject."""

    def __init__(
        self,
        settings: Settings,
        *,
        bodies: Bodies,
        chooser: ModelChooser,
        offers: Offers,
        salts: PrefixSalts,
        marks: TenantMarks,
        images: Images,
        wake: Callable[[str], None],
        takes_tools: Callable[[str], bool],
        caches: bool,
        drawing: Drawing,
        guards: Guards | None = None,
    ) -> None:
        self._guards = guards
        self._drawing = drawing
        self._bodies = bodies
        self._chooser = chooser
        self._offers = offers
        self._salts = salts
        self._marks = marks
        self._images = images
        self._wake = wake
        self._takes_tools = takes_tools
        self._limits = settings.limits
        self._fails_over = settings.gateway.failover
        self._session_header = settings.gateway.session_header
        self._cache = settings.cache if caches else None
        self._uncached = frozenset(model.id for model in settings.models if not model.cache)
        self._thresholds = _thresholds(settings)
        self._speculating = _speculating(settings)

    async def __call__(self, exchange: Exchange, endpoint: Endpoint, read: Read | None = None) -> Asked:
        """``read`` reads a body that is not in the form of ``endpoint`` itself.

        Raises: what is wrong with the request: BadRequest, Forbidden, NotFound, …
        """
        started_ns = exchange.timeline.clock()
        try:
            return await self._read(exchange, endpoint, read)
        finally:
            exchange.timeline.add("admit", started_ns)

    async def _read(self, exchange: Exchange, endpoint: Endpoint, read: Read | None) -> Asked:
        headers = exchange.headers
        identity = exchange.identity
        controls = parse_controls(headers)
        priority = request_priority(headers, identity.best_priority)
        failover = wants_failover(headers, self._fails_over)
        timeout_s = request_timeout_s(headers, self._limits.request_timeout_s)
        body = await self._bodies.read(exchange, identity.tenant, is_conversation=endpoint is Endpoint.CHAT)
        reading: Reading | None = None
        if read is None:
            fields = parse_json(body)
            await let_others(len(body))
            prompt = await self._drawing.prompt(exchange, endpoint, fields)
            raw = Raw(endpoint, fields, fields, body)
        else:
            fields = await _parsed(body, self._limits)
            prompt = await self._drawing.prompt(exchange, endpoint, fields)
            reading = await read(exchange, identity, fields)
            await let_others(len(body) + exchange.loaded_bytes)
            raw = Raw(endpoint, fields, reading.fields, None)
        session = _session(identity.tenant, named_session(headers, fields, self._session_header), reading)
        with in_its_own_words(reading):
            drawn = await self._drawing.draw(exchange, raw, prompt, session)
            sent = drawn.sent
            await let_others(len(body) + exchange.loaded_bytes)
            weight = refuse_excess(sent.fields, self._limits)
            remote = self._images.check(sent.fields)
            request = self._chosen(exchange, drawn)
        fingerprint = self._offers.fingerprint(request.model)
        self._offers.require(endpoint.value, request.model)
        if self._guards is not None:
            request = await self._guarded(self._guards, exchange, identity, request, sent)
        if remote:
            with in_its_own_words(reading):
                fields_with_images = await self._images.fetch(request.fields, remote, identity.tenant)
            request = under(generation_from(endpoint, fields_with_images), request.model)
        key = self._cache_key(request, identity, fingerprint, drawn.marks)
        exchange.facts.session = None if session is None else self._marks.session(session)
        exchange.load(max(0, len(request.body) - len(body) - exchange.loaded_bytes))  # fetched images
        return Asked(
            exchange,
            identity,
            request,
            key,
            self._with_threshold(controls, request.model),
            priority,
            failover,
            timeout_s,
            salt=self._salts.salt(identity.tenant, request.fields),
            session=session,
            weight=weight,
            cache_status="bypass" if key is None else "miss",
            reading=reading,
            writer=_writer_of(reading),
            ending=None if reading is None else reading.ending,
            begins_session=reading is not None and reading.begins_session,
            shadowed=None if remote else await self._drawing.shadowed(exchange, drawn, request),
        )

    def _chosen(self, exchange: Exchange, drawn: Drawn) -> ParsedRequest:
        """The request under the own name of the model that answers. If the client used another name,
        a header says so."""
        sent = drawn.sent
        chosen = self._chooser.choose(drawn.asked, exchange.headers, time.monotonic())
        if chosen.to_start is not None:
            self._wake(chosen.to_start)
        request = chosen.request
        require_model(exchange.identity, sent.model, request.model)
        if calls_tools(request.fields) and not self._takes_tools(self._chooser.names.model_of(request.model)):
            raise refuse_tools(sent.model)
        if self._speculating and self._chooser.names.model_of(request.model) in self._speculating:
            refuse_unsupported(request.fields)
        if request.model != sent.model:
            exchange.response_headers[MODEL_HEADER] = quote(request.model, safe=SAFE_IN_HEADER)
        return request

    async def _guarded(
        self,
        guards: Guards,
        exchange: Exchange,
        identity: Identity,
        request: ParsedRequest,
        sent: ParsedRequest,
    ) -> ParsedRequest:
        """The request as its guards let it pass: the cache, the embedder and engines see no other."""
        names = (sent.model, request.model)
        held = guards.held(Stage.BEFORE, models=names, tenant=identity.tenant, path=exchange.path)
        if held is None:
            return request
        with exchange.timeline.step("guard"):
            fields = await held.judged(request.fields)
        # Also where nothing was changed: members get the fields that were looked at, and no others.
        return under(generation_from(request.endpoint, fields), request.model)

    def _with_threshold(self, controls: CacheControls, model: str) -> CacheControls:
        """The threshold of the request's header, else that of its model's settings."""
        if not self._thresholds or controls.threshold is not None:
            return controls
        least = self._thresholds.get(self._chooser.names.model_of(model))
        return controls if least is None else replace(controls, threshold=least)

    def _cache_key(
        self, request: ParsedRequest, identity: Identity, fingerprint: str, marks: Sequence[str]
    ) -> CacheKey | None:
        """``None`` for a request that bypasses the cache."""
        if self._cache is None or self._chooser.names.model_of(request.model) in self._uncached:
            return None
        by, sampled = self._cache.partition_by, self._cache.sampled
        return cache_key(request, identity.tenant, fingerprint, by, sampled=sampled, marks=marks)


async def _parsed(body: bytes, limits: LimitSettings) -> dict[str, Any]:
    """The client's own fields, within the limits that hold for a conversation."""
    fields = parse_json(body)
    await let_others(len(body))
    refuse_large(fields, limits)
    await let_others(len(body))
    return fields


def _session(tenant: str, named: str | None, reading: Reading | None) -> str | None:
    """The session that a request names, or else that its chain is, kept apart from other tenants' sessions
    of the same name."""
    name = reading.session if named is None and reading is not None else named
    return None if name is None else f"{tenant}\0{name}"


def _writer_of(reading: Reading | None) -> Writer | None:
    """Its ids are new: clients may repeat a request's id, and agents merge answers whose ids are equal."""
    if reading is None or reading.writer is None:
        return None
    return reading.writer(uuid4().hex, int(time.time()))


def _thresholds(settings: Settings) -> dict[str, float]:
    """Thresholds of models that have their own."""
    thresholds = {model.id: model.cache_threshold for model in settings.models}
    return {model: least for model, least in thresholds.items() if least is not None}


def _speculating(settings: Settings) -> frozenset[str]:
    """The models whose members all decode speculatively. External upstreams may not."""
    engines = {model.id: model.engine for model in settings.models if not model.upstreams}
    return frozenset(model for model, engine in engines.items() if engine and engine.speculation)
