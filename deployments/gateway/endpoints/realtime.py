"""``/v1/realtime``: who may open a WebSocket, and at which member it stays."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from deployments.gateway.endpoints.realtime_session import RealtimeSession, SessionParts
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.request.call import SlotRequest, forwarded_headers
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.gate import uses_model
from deployments.gateway.request.socket import ClientSocket
from deployments.gateway.send.pinned import Pinned, Pins
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.errors import NotFound, OverCapacity, UpgradeRequired
from serve_app.fleet import EngineReport
from serve_app.latency import LatencyWindows
from serve_app.model_choice.offers import Offers
from serve_app.realtime.opening import chosen_subprotocol, model_of, query_of
from serve_app.redaction import Redactor
from serve_app.request.auth import Identity, require_model
from serve_app.request.deadline import request_timeout_s
from serve_app.request.tenant_marks import TenantMarks
from serve_app.routing import RoutingRequest, named_session
from serve_app.settings import Settings
from serve_app.settings.paths import REALTIME
from serve_app.traffic import Traffic


class RealtimeEndpoint:
    """Where the query names the model, it is checked before the upgrade is accepted, so that a refusal is an
    HTTP status; else the first `session.update` names it. A member is found for the first audio: a session
    that says nothing takes no slot. It is one class because all of it happens before that, with parts that
    nothing else needs together."""

    def __init__(
        self,
        settings: Settings,
        *,
        offers: Offers,
        pins: Pins,
        marks: TenantMarks,
        redactor_of: Callable[[EngineReport], Redactor],
        tracer: RequestTracer | None,
        latency: LatencyWindows,
        traffic: Traffic,
        guards: Guards | None = None,
        part_of: Callable[[int], int] = int,
    ) -> None:
        """``part_of``: how much of a limit of the application is this gateway's."""
        self._part_of = part_of
        self._guards = guards
        self._settings = settings.realtime
        self._limits = settings.limits
        self._session_header = settings.gateway.session_header
        self._offers = offers
        self._pins = pins
        self._marks = marks
        self._tracer = tracer
        self._traffic = traffic
        self._parts = SessionParts(
            settings=settings.realtime,
            limits=settings.limits,
            redactor_of=redactor_of,
            latency=latency,
            traffic=traffic,
        )
        self._open: Counter[str] = Counter()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.method != "GET":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        socket: ClientSocket | None = exchange.socket
        if socket is None:
            raise UpgradeRequired(exchange.path)
        identity = exchange.identity
        query = query_of(exchange.query)
        model = model_of(query)
        with self._counted(identity.tenant):
            if model is not None:
                self._check(exchange, model)
            await self._serve(exchange, socket, identity, query, model)

    @contextmanager
    def _counted(self, tenant: str) -> Iterator[None]:
        """Raises: OverCapacity."""
        if self._open.total() >= self._part_of(self._settings.max_sessions):
            raise OverCapacity(f"{self._settings.max_sessions} sessions are open (realtime.max_sessions).", 1)
        if self._open[tenant] >= self._part_of(self._settings.max_sessions_per_tenant):
            raise OverCapacity(
                f"{self._settings.max_sessions_per_tenant} sessions of this tenant are open "
                "(realtime.max_sessions_per_tenant).",
                1,
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    async def _serve(
        self,
        exchange: Exchange,
        socket: ClientSocket,
        identity: Identity,
        query: Mapping[str, str],
        model: str | None,
    ) -> None:
        async def pin(name: str) -> Pinned:
            return await self._pin(exchange, identity, query, name)

        if exchange.account is not None:
            exchange.account.tell_client()
        await socket.accept(chosen_subprotocol(socket.subprotocols), exchange.response_headers)
        self._traffic.realtime_sessions += 1
        session = RealtimeSession(
            self._parts,
            socket,
            model=model,
            check=partial(self._check, exchange),
            still_allowed=partial(self._still_allowed, socket),
            pin=pin,
            new_id=new_id,
        )
        await session.run()

    async def _pin(
        self, exchange: Exchange, identity: Identity, query: Mapping[str, str], model: str
    ) -> Pinned:
        """Raises: OverCapacity, NoReplica, UpstreamFailed, UpstreamTimeout."""
        named = named_session(exchange.headers, query, self._session_header)
        session = None if named is None else f"{identity.tenant}\0{named}"
        exchange.facts.session = None if session is None else self._marks.session(session)
        slot = SlotRequest(
            account=exchange.account,
            tenant=identity.tenant,
            path=REALTIME,
            priority=request_priority(exchange.headers, identity.best_priority),
            deadline=time.monotonic() + request_timeout_s(exchange.headers, self._limits.request_timeout_s),
            timeline=exchange.timeline,
            routing=RoutingRequest(0.0, session=session),
        )
        headers = forwarded_headers(exchange, self._tracer)
        del headers["content-type"]
        return await self._pins.open(model, slot, headers)

    def _check(self, exchange: Exchange, model: str) -> None:
        """Raises: UnknownModel, EmbedderOnly, NotFound, GuardRefused."""
        self._require(model)
        uses_model(exchange, model, self._offers.own(model))
        if self._guards is not None:
            self._guards.refuse_unseen_session(model, exchange.facts.tenant or "", REALTIME)

    def _still_allowed(self, socket: ClientSocket, model: str) -> None:
        """Raises: Unauthorized, Forbidden."""
        require_model(socket.still_allowed(), model, self._offers.own(model))

    def _require(self, model: str) -> None:
        self._offers.fingerprint(model)
        having = self._offers.names_with(REALTIME)
        if model not in having:
            which = f"Models that do: {', '.join(having)}." if having else "No model here does."
            raise NotFound(
                f"The model {model!r} does not transcribe live audio (its task is not `realtime`, or "
                f"`models[].paths` leaves out {REALTIME}). {which}",
                param="model",
                code="path_not_offered",
            )


def new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(12).hex()}"
