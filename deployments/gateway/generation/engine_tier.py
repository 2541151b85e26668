"""The last tier: an engine answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from deployments.gateway.experiments.shadows import TENANT as SHADOW
from deployments.gateway.generation.asked import Asked
from deployments.gateway.generation.record import Recorder
from deployments.gateway.generation.tiers import Found, found_at_engine
from deployments.gateway.lookup.in_flight import InFlightRequests
from deployments.gateway.request.account import Account
from deployments.gateway.request.answer import Answer, OwnAnswer
from deployments.gateway.request.authentication import ANYONE
from deployments.gateway.request.beside import Beside
from deployments.gateway.request.call import (
    Call,
    Message,
    Purpose,
    SlotRequest,
    deadline_of,
    forwarded_headers,
    target_of,
)
from deployments.gateway.send.dispatch import Dispatcher
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import LAST_PRIORITY
from serve_app.model_choice.names import ModelNames
from serve_app.openai.bounds import weight_field
from serve_app.openai.continuation import resumable
from serve_app.openai.requests import ParsedRequest
from serve_app.request.timing import Timeline
from serve_app.routing import Router
from serve_app.settings import Settings


class EngineTier:
    """Asks an engine. Others may join where an identical request could be answered alike. It is one class
    because an answer, one that replaces a stale one, and a shadow are asked for on the same terms."""

    def __init__(
        self,
        settings: Settings,
        dispatcher: Dispatcher,
        in_flight: InFlightRequests,
        recorder: Recorder,
        *,
        names: ModelNames,
        routers: Mapping[str, Router],
        tracer: RequestTracer | None,
    ) -> None:
        self._joins = settings.cache_joins
        self._keep_bytes = settings.limits.max_stream_buffer_bytes
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._recorder = recorder
        self._names = names
        self._routers = routers
        self._tracer = tracer

    async def find(self, asked: Asked) -> Found:
        return found_at_engine(asked, self.start(asked), asked.cache_status)

    def has_room(self, asked: Asked) -> bool:
        """The request would go to an engine at once."""
        return self._dispatcher.has_room(asked.request.model, asked.identity.tenant, asked.weight)

    def start(self, asked: Asked, *, races: bool = False) -> Answer:
        """An answer that opens when it is first asked to begin; one that ``races``, or that others may join,
        opens by itself."""
        return self._start(asked, self.call_for(asked), asked.exchange.account, races=races)

    def refresh(self, asked: Asked) -> tuple[Answer, Beside | None]:
        """An answer that replaces the stale one which the request got, and the account that pays for it at
        its end: that of the same sender, so that asking for stale answers again and again is not free."""
        call, account = self.call_for(asked), None
        if asked.exchange.account is not None:
            account = Beside.of(asked.exchange.account)
            call = msgspec.structs.replace(call, slot=msgspec.structs.replace(call.slot, account=account))
        return self._start(asked, call, account, races=False), account

    def _start(self, asked: Asked, call: Call, account: Account | None, *, races: bool) -> Answer:
        opening = self._dispatcher.open(call)
        key = asked.in_flight_key if self._joins else None
        if key is None and not races and not asked.may_store:
            return OwnAnswer(opening)
        reader = self._in_flight.start(
            key,
            opening,
            self._keep_bytes if asked.may_store else 0,
            partial(self._recorder.store, asked) if asked.may_store else None,
            opens_alone=not races,
            priority=asked.priority,
        )
        if account is not None:
            account.members.goes_on = reader.goes_on
        return reader

    def shadow_call(self, asked: Asked, request: ParsedRequest) -> Call:
        """The same terms for another ``request``, without a client: it counts for no tenant, goes last, and
        is sent once."""
        call, salt = self.call_for(asked), asked.salt
        routing = self._routers[self._names.model_of(request.model)].describe(request, None, salt)
        slot = msgspec.structs.replace(
            call.slot,
            account=None,
            tenant=SHADOW,
            priority=LAST_PRIORITY,
            timeline=Timeline(asked.exchange.timeline.clock),
            routing=routing,
            weight_field=weight_field(request.fields),
        )
        message = msgspec.structs.replace(
            call.message, body=request.body, fields=request.fields, best_priority=LAST_PRIORITY
        )
        return msgspec.structs.replace(
            call,
            model=request.model,
            slot=slot,
            message=message,
            body=request.body,
            failover=False,
            resumes=None,
        )

    def call_for(self, asked: Asked) -> Call:
        exchange, request, identity = asked.exchange, asked.request, asked.identity
        message = Message(
            method=exchange.method,
            target=target_of(exchange) if asked.writer is None else request.endpoint.value,
            body=request.body,
            fields=request.fields,
            headers=forwarded_headers(exchange, self._tracer),
            streams=request.generation.wants_stream,
            include_usage=asked.asks_for_usage,
            measures=request.generation.wants_stream,
            salt=asked.salt,
            best_priority=identity.best_priority,
            translated=asked.writer is not None,
            as_read=identity is not ANYONE,
        )
        router = self._routers[self._names.model_of(request.model)]
        slot = SlotRequest(
            account=exchange.account,
            tenant=identity.tenant,
            path=request.endpoint.value,
            priority=asked.priority,
            deadline=deadline_of(exchange, asked.timeout_s),
            timeline=exchange.timeline,
            routing=router.describe(request, asked.session, asked.salt, begins_session=asked.begins_session),
            weight=asked.weight,
            weight_field=weight_field(request.fields),
        )
        return Call(
            model=request.model,
            purpose=Purpose.ANSWER,
            slot=slot,
            message=message,
            body=request.body,
            failover=asked.failover,
            resumes=resumable(request) if asked.failover else None,
        )
