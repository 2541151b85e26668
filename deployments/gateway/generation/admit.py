"""From an HTTP request to what it asks for: who asks, what is allowed, which model answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

from deployments.gateway.generation.asked import Asked
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.services import Services
from serve_app.admission import request_priority
from serve_app.cache.keys import CacheKey, cache_key
from serve_app.model_choice.chooser import ModelChooser
from serve_app.openai.bounds import refuse_excess
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation
from serve_app.request.auth import Identity
from serve_app.request.cache_controls import CacheControls, parse_controls
from serve_app.request.failover import wants_failover
from serve_app.settings import Settings
from serve_app.speculation.sampling import refuse_unsupported

MODEL_HEADER = "x-model"
"""The model that answers, where the request named an alias or left the choice to us."""

SAFE_IN_HEADER = "/:@+=,"


class Admit:
    """Authenticates, reads and parses a request once. ``wake`` is told of a model that is scaled to zero."""

    def __init__(
        self, endpoint: Endpoint, services: Services, chooser: ModelChooser, wake: Callable[[str], None]
    ) -> None:
        self._endpoint = endpoint
        self._services = services
        self._chooser = chooser
        self._wake = wake
        self._thresholds = _thresholds(services.settings)
        self._speculating = _speculating(services.settings)

    async def __call__(self, exchange: Exchange) -> Asked:
        """Raises what the client did wrong: BadRequest, Unauthorized, NotFound, …"""
        with exchange.timeline.step("admit"):
            services = self._services
            identity = services.identify(exchange)
            controls = parse_controls(exchange.headers)
            priority = request_priority(exchange.headers, identity.best_priority)
            failover = wants_failover(exchange.headers, services.settings.gateway.failover)
            timeout_s = services.timeout_s(exchange)
            body = await services.bodies.read(exchange, identity.tenant)
            sent = parse_generation(self._endpoint, body)
            weight = refuse_excess(sent.fields, services.settings.limits)
            request = self._chosen(exchange, sent)
            controls = self._with_threshold(controls, request.model)
            fingerprint = services.fingerprint(request.model)
            services.require_offered(exchange.path, request.model)
            key = self._cache_key(request, identity, fingerprint)
            return Asked(
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
                cache_status="bypass" if key is None else "miss",
            )

    def _chosen(self, exchange: Exchange, sent: ParsedRequest) -> ParsedRequest:
        """The request under the own name of the model that answers; a client that named another is told."""
        chosen = self._chooser.choose(sent, exchange.headers, time.monotonic())
        if chosen.to_start is not None:
            self._wake(chosen.to_start)
        request = chosen.request
        if self._chooser.names.model_of(request.model) in self._speculating:
            refuse_unsupported(request.fields)
        if request.model != sent.model:
            exchange.response_headers[MODEL_HEADER] = quote(request.model, safe=SAFE_IN_HEADER)
        return request

    def _with_threshold(self, controls: CacheControls, model: str) -> CacheControls:
        """What a request asks for goes before what its model's settings say."""
        least = self._thresholds.get(self._chooser.names.model_of(model))
        if controls.threshold is not None or least is None:
            return controls
        return replace(controls, threshold=least)

    def _cache_key(self, request: ParsedRequest, identity: Identity, fingerprint: str) -> CacheKey | None:
        """``None`` for a request that the cache takes no part in."""
        model = self._chooser.names.model_of(request.model)
        settings = self._services.settings.cache
        if settings is None or self._services.cache is None or model in self._services.uncached_models:
            return None
        return cache_key(request, identity.tenant, fingerprint, settings.partition_by)


def _thresholds(settings: Settings) -> dict[str, float]:
    """By model, where one has its own."""
    thresholds = {model.id: model.cache_threshold for model in settings.models}
    return {model: least for model, least in thresholds.items() if least is not None}


def _speculating(settings: Settings) -> frozenset[str]:
    """The models whose members all decode speculatively; an upstream of ours or a vendor's may not."""
    engines = {model.id: model.engine for model in settings.models if not model.upstreams}
    return frozenset(model for model, engine in engines.items() if engine and engine.speculation)
