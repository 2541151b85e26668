"""The Gateway deployment: makes the parts, hands them to the app, ends them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.gateway.app import GatewayApp
from deployments.gateway.cache_client import CacheClient
from deployments.gateway.fleet_watch import FleetWatch
from deployments.gateway.relay import Relay
from deployments.gateway.services import Services
from deployments.gateway.upstream import UpstreamPool
from deployments.telemetry import tracer_from_environment
from serve_app.auth import KeyRecord, KeyRing
from serve_app.fleet import FleetTable
from serve_app.latency import LatencyWindows
from serve_app.routing import POLICIES
from serve_app.settings import Settings

PRIME_RETRY_S = 0.5

logger = logging.getLogger("ray.serve")


class Gateway:
    """One event loop, no GPU, nothing that may not be lost: add replicas for more clients.

    The builder wraps this class with ``serve.ingress()``, which calls ``__serve_build_asgi_app__``
    once the constructor has run.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: Settings,
        key_records: Sequence[KeyRecord] | None,
        engines: Mapping[str, DeploymentHandle[Any]],
        embedder: DeploymentHandle[Any] | None = None,
        cache: DeploymentHandle[Any] | None = None,
    ) -> None:
        fleet = FleetTable(engines)
        self._upstream = UpstreamPool()
        self._tracer = tracer_from_environment(os.environ)
        self._watch = FleetWatch(engines, fleet, self._upstream, settings.gateway.fleet_poll_s)
        self._services = Services(
            settings=settings,
            keys=None if key_records is None else KeyRing(key_records),
            fleet=fleet,
            cache=_cache_client(settings, embedder, cache),
            embedder=embedder,
            latency=LatencyWindows(),
        )
        policy = POLICIES[settings.gateway.routing]
        self._relay = Relay(fleet, policy, self._upstream, self._tracer)
        self._priming = asyncio.get_running_loop().create_task(self._prime())

    async def __serve_build_asgi_app__(self) -> GatewayApp:
        return GatewayApp(self._services, self._relay, self._tracer)

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

    async def __del__(self) -> None:
        if not hasattr(self, "_priming"):
            return  # the constructor failed; its own error says why
        self._priming.cancel()
        self._watch.stop()
        if self._services.cache is not None:
            self._services.cache.stop()
        await self._upstream.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.shut_down)


def _cache_client(
    settings: Settings, embedder: DeploymentHandle[Any] | None, cache: DeploymentHandle[Any] | None
) -> CacheClient | None:
    if settings.cache is None or embedder is None or cache is None:
        return None
    return CacheClient(settings.cache, embedder, cache)
