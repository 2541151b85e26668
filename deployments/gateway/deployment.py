"""The Gateway deployment: a gateway in a Serve replica."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.gateway.app import GatewayApp
from deployments.gateway.autoscaling import LoopWatch
from deployments.gateway.endpoints.admin_plan import Planner
from deployments.gateway.guardrails.guards import GuardHeaders
from deployments.gateway.monitoring.monitor import Measured
from deployments.gateway.others.others import GatewayReport
from deployments.gateway.placement.external import ExternalUpstream
from deployments.gateway.runtime import GatewayRuntime
from deployments.platform.http_protocol import mend_http
from deployments.platform.metrics import RayMeter
from deployments.platform.otel_metrics import Meters, otel_meter_from
from deployments.platform.serve import ask_every_replica, node_address
from deployments.platform.websocket_protocol import bound_websockets
from serve_app.engines.placement import gateway_bounds
from serve_app.recent import Found, Query
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources
from serve_app.settings import Settings

T = TypeVar("T")

logger = logging.getLogger("ray.serve")

ASK_TIMEOUT_S = 1.0

YOUNG_OBJECTS = 10_000  # more live objects than these since the last look start a young collection


class Gateway:
    """One event loop, no GPU, and no state that must survive: add replicas for more clients.

    The builder wraps this class with ``serve.ingress()``, which calls ``__serve_build_asgi_app__``
    once the constructor has run.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: Settings,
        keys: KeySources | None,
        engines: Mapping[str, DeploymentHandle[Any]],
        *,
        external: Sequence[ExternalUpstream] = (),
        embedder: DeploymentHandle[Any] | None = None,
        cache: Sequence[DeploymentHandle[Any]] = (),
        responses: DeploymentHandle[Any] | None = None,
        accounts: DeploymentHandle[Any] | None = None,
        feedback: DeploymentHandle[Any] | None = None,
        tenant_secret: bytes,
        admin_token: AdminToken | None = None,
        client_secret: str | None = None,
        planner: Planner | None = None,
        guard_headers: GuardHeaders | None = None,
    ) -> None:
        mend_http()  # a bare `serve run` asks for no middlewares
        bound_websockets(settings.realtime.max_event_bytes)
        _collect_less()
        fewest, most = gateway_bounds(settings)
        gateways = AllGateways(_own_handle()) if most > 1 else None
        self._otel = otel_meter_from(os.environ)
        meter = RayMeter()
        self._runtime = GatewayRuntime(
            settings,
            keys,
            engines,
            external=external,
            embedder=embedder,
            cache=cache,
            responses=responses,
            accounts=accounts,
            feedback=feedback,
            tenant_secret=tenant_secret,
            admin_token=admin_token,
            client_secret=client_secret,
            meter=meter if self._otel is None else Meters([meter, self._otel]),
            ask_others=gateways.measured if gateways else None,
            find_everywhere=gateways.find_requests if gateways else None,
            ask_gateways=gateways.reports if gateways else None,
            host=node_address() if gateways else "",
            planner=planner,
            guard_headers=guard_headers,
        )
        self._loop_watch = LoopWatch(self._runtime.app.waits_s) if most > fewest else None
        await self._runtime.begun()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve's hook for custom metrics, of gateways whose number follows them."""
        return {} if self._loop_watch is None else self._loop_watch.metrics()

    async def measured(self) -> Measured:
        """Called by every other gateway (see ``AllGateways``)."""
        return self._runtime.measured()

    async def report(self) -> GatewayReport | None:
        """Called by every other gateway, as ``measured``."""
        return self._runtime.together.report()

    async def find_requests(self, query: Query) -> Found | None:
        """Called by every other gateway, as ``measured``."""
        return await self._runtime.find_requests(query)

    async def __serve_build_asgi_app__(self) -> GatewayApp:
        return self._runtime.app

    async def __del__(self) -> None:
        watch: LoopWatch | None = getattr(self, "_loop_watch", None)
        if watch is not None:
            await watch.stop()
        if hasattr(self, "_runtime"):  # else the constructor failed, with an error of its own
            await self._runtime.close()
            if self._otel is not None:
                await asyncio.to_thread(self._otel.shut_down)


class AllGateways:
    """Asks every gateway replica of this deployment, this one too. One that is late is left out, and the
    answers of the others stay."""

    def __init__(self, handle: DeploymentHandle[Any], timeout_s: float = ASK_TIMEOUT_S) -> None:
        self._handle = handle
        self._timeout_s = timeout_s

    async def measured(self) -> Sequence[Measured]:
        return await self._ask(Measured, "measured")

    async def reports(self) -> Sequence[GatewayReport]:
        return await self._ask(GatewayReport, "report")

    async def find_requests(self, query: Query) -> Sequence[Found]:
        return await self._ask(Found, "find_requests", query)

    async def _ask(self, kind: type[T], method: str, *arguments: Any) -> Sequence[T]:
        """Answers of the type ``kind``; none if Serve does not list the gateways in time."""
        try:
            answers, _ = await ask_every_replica(self._handle, method, self._timeout_s, *arguments)
        except Exception as error:  # Serve itself is late: what this one has is there
            logger.debug("other gateways did not answer: %s", type(error).__name__)
            return ()
        return [answer for answer in answers if isinstance(answer, kind)]


def _own_handle() -> DeploymentHandle[Any]:
    own = serve.get_replica_context()
    return serve.get_deployment_handle(own.deployment, own.app_name, _check_exists=False)


def _collect_less() -> None:
    """Some 300,000 objects of imported modules live for ever: a full collection that visits them stops every
    stream for a tenth of a second.

    Python's own threshold (700 objects) would collect for nearly every request of a burst, and find each time
    that a request's objects are still in use.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
