"""Makes the endpoints that ask members for something else than text: recordings, embeddings, live audio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deployments.gateway.endpoints.audio import AudioEndpoint
from deployments.gateway.endpoints.embeddings import EmbeddingsEndpoint
from deployments.gateway.endpoints.items import ItemsEndpoint
from deployments.gateway.endpoints.messages import CountTokens, MessagesReader
from deployments.gateway.endpoints.passthrough import PassThrough
from deployments.gateway.endpoints.realtime import RealtimeEndpoint
from deployments.gateway.endpoints.verbatim import Verbatim
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.lookup.item_cache import ItemCache
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.intake import Intake
from deployments.gateway.send.ways import Ways
from deployments.platform.telemetry import RequestTracer
from deployments.wire.upstream import UpstreamPool
from serve_app.latency import LatencyWindows
from serve_app.model_choice.names import ModelNames
from serve_app.request.tenant_marks import TenantMarks
from serve_app.settings import Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


def relaying_handlers(
    settings: Settings,
    names: ModelNames,
    intake: Intake,
    ways: Ways,
    *,
    upstream: UpstreamPool,
    embedder: DeploymentHandle[Any] | None,
    cache: CacheClient | None,
    marks: TenantMarks,
    tracer: RequestTracer | None,
    latency: LatencyWindows,
    guards: Guards | None,
    part_of: Callable[[int], int],
) -> dict[str, Handler]:
    """Handlers by the names that the table of routes uses. ``part_of``: how much of a limit is this
    gateway's."""
    offers, dispatcher, item_cache = intake.offers, ways.dispatcher, _item_cache(settings, cache)
    verbatim = Verbatim(
        bodies=intake.bodies,
        offers=offers,
        salts=intake.salts,
        dispatcher=dispatcher,
        tracer=tracer,
        limits=settings.limits,
        guards=guards,
    )
    items = ItemsEndpoint(
        offers, verbatim, item_cache, images=intake.images, names=names, traffic=dispatcher.traffic
    )
    return {
        "audio": AudioEndpoint(
            settings,
            bodies=intake.bodies,
            offers=offers,
            dispatcher=dispatcher,
            cache=item_cache,
            names=names,
            tracer=tracer,
            latency=latency,
            guards=guards,
        ),
        "embeddings": EmbeddingsEndpoint(
            verbatim,
            items,
            embedder=settings.embedder,
            handle=embedder,
            marks=marks,
            limits=settings.limits,
            part_of=part_of,
        ),
        "items": items,
        "count_tokens": CountTokens(verbatim, intake.images, MessagesReader(settings.gateway)),
        "realtime": RealtimeEndpoint(
            settings,
            offers=offers,
            pins=ways.pins,
            marks=marks,
            redactor_of=upstream.redactor,
            tracer=tracer,
            latency=latency,
            traffic=dispatcher.traffic,
            guards=guards,
            part_of=part_of,
        ),
        "relay": PassThrough(offers, verbatim),
    }


def _item_cache(settings: Settings, cache: CacheClient | None) -> ItemCache | None:
    if settings.cache is None or cache is None or settings.cache.item_bytes == 0:
        return None
    uncached = [model.id for model in settings.models if not model.cache]
    return ItemCache(cache.memory, cache.expiry, uncached, settings.cache.partition_by)
