"""Requests that the gateway reads only as far as it must: relayed to the model that the body names, and
answered with whatever the engine answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deployments.gateway.request.answer import OwnAnswer
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.call import (
    Call,
    Message,
    Purpose,
    SlotRequest,
    deadline_of,
    forwarded_headers,
    target_of,
)
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.relay import relay
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.model_choice.offers import Offers
from serve_app.openai.bounds import refuse_excess, weight_field
from serve_app.openai.requests import parse_json, required_string
from serve_app.request.auth import Identity
from serve_app.request.deadline import request_timeout_s
from serve_app.request.prefix_salt import PrefixSalts
from serve_app.routing import RoutingRequest
from serve_app.routing.prompt import BYTES_PER_TOKEN
from serve_app.settings import LimitSettings


@dataclass(frozen=True, slots=True)
class JsonRequest:
    """A JSON body that names its model. ``weight``: the sequences that it asks for."""

    exchange: Exchange
    identity: Identity
    timeout_s: float
    body: bytes
    fields: dict[str, Any]
    model: str
    weight: int


class Verbatim:
    """Sent at most once: only a refused connection leads to another member."""

    def __init__(
        self,
        *,
        bodies: Bodies,
        offers: Offers,
        salts: PrefixSalts,
        dispatcher: Dispatcher,
        tracer: RequestTracer | None,
        limits: LimitSettings,
    ) -> None:
        self._bodies = bodies
        self._offers = offers
        self._salts = salts
        self._dispatcher = dispatcher
        self._tracer = tracer
        self._limits = limits

    async def read(self, exchange: Exchange, identity: Identity) -> JsonRequest:
        """Raises: BadRequest, and what reading a body raises."""
        timeout_s = request_timeout_s(exchange.headers, self._limits.request_timeout_s)
        body = await self._bodies.read(exchange, identity.tenant)
        fields = parse_json(body)
        weight = refuse_excess(fields, self._limits)
        model = required_string(fields, "model")
        return JsonRequest(exchange, identity, timeout_s, body, fields, model, weight)

    def require_offered(self, asked: JsonRequest) -> None:
        """Raises: UnknownModel, EmbedderOnly, NotFound: the model does not offer the path."""
        self._offers.fingerprint(asked.model)
        self._offers.require(asked.exchange.path, asked.model)

    async def relay(self, asked: JsonRequest, *, weight: int, in_parts: bool) -> None:
        """Ask the model, and pass on its answer. ``weight`` and ``in_parts``: see ``SlotRequest``."""
        exchange, identity = asked.exchange, asked.identity
        message = Message(
            method=exchange.method,
            target=target_of(exchange),
            body=asked.body,
            fields=asked.fields,
            headers=forwarded_headers(exchange, self._tracer),
            salt=self._salts.salt(identity.tenant, asked.fields),
            best_priority=identity.best_priority,
        )
        slot = SlotRequest(
            tenant=identity.tenant,
            path=exchange.path,
            priority=request_priority(exchange.headers, identity.best_priority),
            deadline=deadline_of(exchange, asked.timeout_s),
            timeline=exchange.timeline,
            routing=RoutingRequest(len(asked.body) / BYTES_PER_TOKEN),
            weight=weight,
            weight_field=weight_field(asked.fields),
            in_parts=in_parts,
        )
        call = Call(model=asked.model, purpose=Purpose.RELAY, slot=slot, message=message, body=asked.body)
        await exchange.run(self._answer(exchange, call), asked.timeout_s)

    async def _answer(self, exchange: Exchange, call: Call) -> None:
        await relay(exchange, OwnAnswer(self._dispatcher.open(call)))
