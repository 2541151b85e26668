"""One gateway: makes the parts, hands them to the app, ends them. Runs in any event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.gateway.app import GatewayApp
from deployments.gateway.key_watch import KeyWatch
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.placement.engine_status import EngineStatuses
from deployments.gateway.placement.external import ExternalUpstream
from deployments.gateway.placement.fleet_watch import FleetWatch
from deployments.gateway.placement.queue import Admission
from deployments.gateway.placement.scaling import Scaling
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.services import Services
from deployments.platform.log_redaction import redacted_logs
from deployments.platform.telemetry import tracer_from_environment
from deployments.wire.upstream import AnswerBounds, UpstreamPool
from serve_app.fleet import FleetTable
from serve_app.hedging import Hedge
from serve_app.latency import LatencyWindows
from serve_app.model_choice.names import ModelNames
from serve_app.quarantine import Quarantine
from serve_app.redaction import Redactor
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources
from serve_app.request.tenant_marks import TenantMarks, new_secret
from serve_app.routing import POLICIES, Router
from serve_app.settings import Settings
from serve_app.traffic import Traffic

PRIME_RETRY_S = 0.5

logger = logging.getLogger("ray.serve")


class GatewayRuntime:
    """Everything that one gateway owns. Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: Settings,
        keys: KeySources | None,
        engines: Mapping[str, DeploymentHandle[Any]],
        *,
        external: Sequence[ExternalUpstream] = (),
        embedder: DeploymentHandle[Any] | None = None,
        cache: DeploymentHandle[Any] | None = None,
        tenant_secret: bytes | None = None,
        admin_token: AdminToken | None = None,
    ) -> None:
        """``tenant_secret`` is what all gateways of an application have in common (see ``TenantMarks``); one
        that is alone may make its own."""
        self._scaling = Scaling(settings, engines)
        may_be_empty = self._scaling.cold_starts.keys()
        limits = {model.id: model.max_requests_per_replica for model in settings.models}
        fleet = FleetTable(limits, may_be_empty)
        secrets = [value for each in external for value in each.report.headers.values()]
        self._lasting = ExitStack()
        self._lasting.enter_context(redacted_logs(Redactor(secrets)))
        self._upstream = UpstreamPool(_answer_bounds(settings), secrets)
        self._tracer = tracer_from_environment(os.environ)
        marks = TenantMarks(tenant_secret or new_secret())
        self._services = Services(
            settings=settings,
            keys=None if keys is None else keys.ring(),
            fleet=fleet,
            cache=_cache_client(settings, embedder, cache, marks),
            embedder=embedder,
            latency=LatencyWindows(),
            routers=_routers(settings),
            traffic=Traffic(),
            engines=EngineStatuses(engines, settings),
            marks=marks,
            admin_token=admin_token,
        )
        names = ModelNames.of(settings)
        # Aliases and adapters too, for the paths that relay to whatever model is named.
        self._services.fingerprints |= names.fingerprints(self._services.fingerprints)
        self._admissions = {
            model: Admission(
                model,
                fleet,
                router,
                settings.limits,
                self._services.traffic,
                shared=keys is not None,
                cold_start=self._scaling.cold_starts.get(model),
                demand=self._scaling.demands.get(model),
            )
            for model, router in self._services.routers.items()
        }
        self._watch = FleetWatch(
            engines=engines,
            external=external,
            fleet=fleet,
            upstream=self._upstream,
            period_s=settings.gateway.fleet_poll_s,
            changed=self._fleet_changed,
            may_be_empty=may_be_empty,
        )
        dispatcher = Dispatcher(
            admissions=self._admissions,
            hedges=_hedges(settings),
            names=names,
            by_priority=_scheduled_by_priority(settings),
            fleet=fleet,
            upstream=self._upstream,
            limits=settings.limits,
            max_attempts=settings.gateway.max_attempts,
            traffic=self._services.traffic,
            quarantine=Quarantine(settings.limits.quarantine_s),
        )
        self._keys = None if keys is None or keys.file is None else KeyWatch(keys, self._keys_changed)
        self._scaling.start(self._admissions)
        self._priming = asyncio.get_running_loop().create_task(self._prime())
        self.app = GatewayApp(self._services, dispatcher, self._tracer)

    def _fleet_changed(self, model: str) -> None:
        """Members that are gone are forgotten; room that has come is given to those in line."""
        names = [member.name for member in self._services.fleet.members(model)]
        self._services.routers[model].keep(names)
        self._admissions[model].wake()

    def _keys_changed(self, keys: KeySources) -> None:
        self._services.keys = keys.ring()

    async def _prime(self) -> None:
        """Go every way once that a request will go; until then ``/ready`` says no."""
        cache = self._services.cache
        while cache is not None and not self._services.primed:
            try:
                await cache.prime()
                break
            except Exception as error:  # the embedder or the store is still starting
                logger.info("waiting for embedder and cache: %s", type(error).__name__)
                await asyncio.sleep(PRIME_RETRY_S)
        self._services.primed = True

    async def close(self) -> None:
        self._priming.cancel()
        await self._watch.stop()
        if self._keys is not None:
            await self._keys.stop()
        await self._scaling.stop()
        self._services.refreshes.stop()
        if self._services.cache is not None:
            await self._services.cache.close()
        await self._upstream.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.shut_down)
        self._lasting.close()


def _cache_client(
    settings: Settings,
    embedder: DeploymentHandle[Any] | None,
    cache: DeploymentHandle[Any] | None,
    marks: TenantMarks,
) -> CacheClient | None:
    rules = settings.cache_with_models
    if rules is None or embedder is None or cache is None:
        return None
    return CacheClient(rules, embedder, cache, marks)


def _answer_bounds(settings: Settings) -> AnswerBounds:
    return AnswerBounds(settings.limits.max_event_bytes, settings.limits.max_answer_bytes)


def _routers(settings: Settings) -> dict[str, Router]:
    default = settings.gateway.routing
    return {model.id: Router(POLICIES[model.routing or default]) for model in settings.models}


def _hedges(settings: Settings) -> dict[str, Hedge]:
    return {
        model.id: Hedge(model.hedge.max_share, model.hedge.quantile)
        for model in settings.models
        if model.hedge is not None
    }


def _scheduled_by_priority(settings: Settings) -> frozenset[str]:
    """The models whose own engines are told how urgent a request is; others refuse to be."""
    engines = {model.id: model.engine for model in settings.models if model.engine is not None}
    return frozenset(model for model, engine in engines.items() if engine.scheduling_policy == "priority")
