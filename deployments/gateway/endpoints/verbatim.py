"""Requests that are not read here: relayed to the model named, whatever the engine answers."""

from __future__ import annotations

from collections.abc import Mapping

from deployments.gateway.request.call import Call, deadline_of, forwarded_headers, target_of
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.relay import relay
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.request.auth import Identity
from serve_app.routing import RoutingRequest
from serve_app.routing.prompt import BYTES_PER_TOKEN


class Verbatim:
    """Sent at most once: only a connection that was refused leads to another member."""

    def __init__(self, dispatcher: Dispatcher, tracer: RequestTracer | None) -> None:
        self._dispatcher = dispatcher
        self._tracer = tracer

    async def relay(
        self,
        exchange: Exchange,
        model: str,
        body: bytes,
        fields: Mapping[str, object],
        timeout_s: float,
        *,
        identity: Identity,
        salt: str | None,
        weight: int,
        in_parts: bool = False,
    ) -> None:
        call = Call(
            model=model,
            method=exchange.method,
            path=exchange.path,
            target=target_of(exchange),
            body=body,
            fields=fields,
            headers=forwarded_headers(exchange, self._tracer),
            routing=RoutingRequest(len(body) / BYTES_PER_TOKEN),
            priority=request_priority(exchange.headers, identity.best_priority),
            deadline=deadline_of(exchange, timeout_s),
            timeline=exchange.timeline,
            salt=salt,
            best_priority=identity.best_priority,
            tenant=identity.tenant,
            weight=weight,
            in_parts=in_parts,
        )
        await exchange.run(self._answer(exchange, call), timeout_s)

    async def _answer(self, exchange: Exchange, call: Call) -> None:
        await relay(exchange, await self._dispatcher.open(call))
