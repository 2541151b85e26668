"""Requests that the gateway reads only as far as it must: relayed to the model that the body names, and
answered with whatever the engine answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.request.answer import OwnAnswer
from deployments.gateway.request.authentication import ANYONE
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
from deployments.gateway.request.gate import uses_model
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.relay import relay
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.dialects import Writer
from serve_app.guardrails import Stage
from serve_app.model_choice.offers import Offers
from serve_app.openai.bounds import refuse_excess, weight_field
from serve_app.openai.requests import parse_json, required_string
from serve_app.request.auth import Identity
from serve_app.request.deadline import request_timeout_s
from serve_app.request.prefix_salt import PrefixSalts
from serve_app.routing import RoutingRequest
from serve_app.routing.prompt import relayed_tokens
from serve_app.settings import LimitSettings


@dataclass(frozen=True, slots=True)
class JsonRequest:
    """A JSON body that names its model. ``path`` is what members call the exchange's path; ``weight``: the
    sequences that it asks for."""

    exchange: Exchange
    identity: Identity
    timeout_s: float
    body: bytes
    fields: dict[str, Any]
    model: str
    path: str
    weight: int


def changed(asked: JsonRequest, fields: dict[str, Any]) -> JsonRequest:
    """The request with other fields; the same if they are its own."""
    return asked if fields is asked.fields else _with(asked, fields)


def _with(asked: JsonRequest, fields: dict[str, Any]) -> JsonRequest:
    return replace(asked, fields=fields, body=msgspec.json.encode(fields))


async def _guarded(guards: Guards, asked: JsonRequest) -> JsonRequest:
    """The request as its guards let it pass: with the fields that they saw, and no others, also where its
    body names one twice. Raises: GuardRefused, GuardUnavailable."""
    exchange, tenant = asked.exchange, asked.identity.tenant
    held = guards.held(Stage.BEFORE, models=(asked.model,), tenant=tenant, path=exchange.path)
    if held is None:
        return asked
    with exchange.timeline.step("guard"):
        return _with(asked, await held.judged(asked.fields))


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
        guards: Guards | None = None,
    ) -> None:
        self.guards = guards
        self._bodies = bodies
        self._offers = offers
        self._salts = salts
        self._dispatcher = dispatcher
        self._tracer = tracer
        self._limits = limits

    async def read(
        self, exchange: Exchange, identity: Identity, *, is_conversation: bool = False
    ) -> JsonRequest:
        """Raises: BadRequest, and what reading a body raises."""
        timeout_s = request_timeout_s(exchange.headers, self._limits.request_timeout_s)
        body = await self._bodies.read(exchange, identity.tenant, is_conversation=is_conversation)
        fields = parse_json(body)
        weight = refuse_excess(fields, self._limits)
        model = required_string(fields, "model")
        asked = JsonRequest(exchange, identity, timeout_s, body, fields, model, exchange.path, weight)
        return asked if self.guards is None else await _guarded(self.guards, asked)

    def offered(self, asked: JsonRequest) -> JsonRequest:
        """The request under the path that the model's members have. Raises: UnknownModel, EmbedderOnly,
        NotFound: the model does not offer the path."""
        self._offers.fingerprint(asked.model)
        path = self._offers.path_of(asked.path, asked.model)
        self._offers.require(path, asked.model)
        uses_model(asked.exchange, asked.model, self._offers.own(asked.model))
        return asked if path == asked.path else replace(asked, path=path)

    def call(
        self,
        asked: JsonRequest,
        *,
        weight: int,
        in_parts: bool,
        tokens: float,
        fields: Mapping[str, Any] | None = None,
        translated: bool = False,
    ) -> Call:
        """The request to the model's members. ``weight`` and ``in_parts``: see ``SlotRequest``; ``tokens``:
        of its prompts. ``fields``: what they are sent instead of the client's own body. ``translated``: see
        ``Message``."""
        exchange, identity = asked.exchange, asked.identity
        message = Message(
            method=exchange.method,
            target=target_of(exchange, asked.path),
            body=asked.body if fields is None else msgspec.json.encode(fields),
            fields=asked.fields if fields is None else fields,
            headers=forwarded_headers(exchange, self._tracer),
            salt=self._salts.salt(identity.tenant, asked.fields),
            best_priority=identity.best_priority,
            translated=translated,
            as_read=identity is not ANYONE,
        )
        slot = SlotRequest(
            account=exchange.account,
            tenant=identity.tenant,
            path=asked.path,
            priority=request_priority(exchange.headers, identity.best_priority),
            deadline=deadline_of(exchange, asked.timeout_s),
            timeline=exchange.timeline,
            routing=RoutingRequest(tokens),
            weight=weight,
            weight_field=weight_field(asked.fields),
            in_parts=in_parts,
        )
        return Call(model=asked.model, purpose=Purpose.RELAY, slot=slot, message=message, body=asked.body)

    def ask(self, call: Call) -> OwnAnswer:
        return OwnAnswer(self._dispatcher.open(call))

    async def relay(
        self,
        asked: JsonRequest,
        *,
        weight: int,
        in_parts: bool,
        tokens: float | None = None,
        writer: Writer | None = None,
    ) -> None:
        """Ask the model, and pass on its answer; through ``writer`` if it speaks a dialect. ``weight``
        and ``in_parts``: see ``SlotRequest``. ``tokens``: of its prompts; default: of its body."""
        if tokens is None:
            tokens = relayed_tokens(asked.body)
        call = self.call(
            asked, weight=weight, in_parts=in_parts, tokens=tokens, translated=writer is not None
        )
        await asked.exchange.run(self._answer(asked.exchange, call, writer), asked.timeout_s)

    async def _answer(self, exchange: Exchange, call: Call, writer: Writer | None) -> None:
        await relay(exchange, self.ask(call), writer=writer)
