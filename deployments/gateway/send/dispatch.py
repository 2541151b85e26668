"""Sends a call to a member, to another one if that fails before the first byte, to two if it is slow."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping

from deployments.gateway.placement.queue import Admission, may_take
from deployments.gateway.request.answer import LiveAnswer
from deployments.gateway.request.call import Call, Purpose
from deployments.gateway.send.continuation import ContinuedAnswer
from deployments.gateway.send.live_answer import ERROR_EVENT, Leg, PlainAnswer
from deployments.wire.upstream import ConnectionBroken, ConnectionRefused, UpstreamPool, UpstreamResponse
from serve_app.errors import (
    EngineError,
    NoReplica,
    PromptlyError,
    Quarantined,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
)
from serve_app.fleet import UNREACHABLE_S, Dispatch, EngineReport, EngineState, FleetTable
from serve_app.hedging import Hedge
from serve_app.model_choice.names import ModelNames
from serve_app.openai.upstream_errors import normalise_error, stream_error
from serve_app.quarantine import Quarantine
from serve_app.request.failover import Tried
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

TOO_MANY_REQUESTS = 429
INTERNAL_ERROR = 500
NOT_FOR_US = (401, 403)
CLOCK_S = 0.01
"""An event loop's timer may be so much ahead of the clock."""

Placed = Callable[[Dispatch], None]
"""Told every place that a call gets."""


class Dispatcher:
    """One gateway's way to every member of every model. A call names a model, an alias or an adapter."""

    def __init__(
        self,
        *,
        admissions: Mapping[str, Admission],
        hedges: Mapping[str, Hedge],
        names: ModelNames,
        by_priority: frozenset[str],
        fleet: FleetTable,
        upstream: UpstreamPool,
        limits: LimitSettings,
        max_attempts: int,
        traffic: Traffic,
        quarantine: Quarantine,
    ) -> None:
        self._admissions = admissions
        self._hedges = hedges
        self._names = names
        self._by_priority = by_priority
        self._fleet = fleet
        self._upstream = upstream
        self._limits = limits
        self._max_attempts = max_attempts
        self._traffic = traffic
        self._quarantine = quarantine

    def has_room(self, model: str) -> bool:
        """A request would go to a member at once."""
        return self._admission(model).has_room()

    def start(self, model: str) -> None:
        """A model that is scaled to zero is wanted; nothing is done about one that is not."""
        self._admissions[model].start_if_cold()

    async def open(self, call: Call) -> LiveAnswer:
        """The answer of the first member that gives one; its first bytes have arrived.

        Raises:
            UpstreamRefused: an engine refuses the request itself; no other would take it.
            Quarantined: members broke on the very same request a moment ago.
            OverCapacity, NoReplica, UpstreamFailed, UpstreamTimeout: nobody answered.
        """
        self._traffic.requests += 1
        if not self._quarantine.is_empty:
            self._refuse_what_breaks_members(call)
        tried = Tried()
        leg = await self._counted(call, tried)
        if call.resumes is not None and leg.response.is_stream and leg.dispatch.member.report.gives_token_ids:
            return ContinuedAnswer(call, leg, tried, self.begin, self._traffic)
        return PlainAnswer(leg, ends_with_done=call.purpose is not Purpose.RELAY)

    def _refuse_what_breaks_members(self, call: Call) -> None:
        left_s = self._quarantine.refused_for_s(call.body_key, time.monotonic())
        if left_s > 0:
            self._traffic.quarantined += 1
            raise Quarantined(math.ceil(left_s))

    async def _counted(self, call: Call, tried: Tried) -> Leg:
        """``begin``, told to the autoscaler of a model that has one."""
        admission = self._admission(call.model)
        demand = admission.demand
        if demand is None:
            return await self.begin(call, tried)
        asked = demand.came(call.place.routing.prompt_tokens, time.monotonic(), cold=admission.is_cold)

        def placed(dispatch: Dispatch) -> None:
            if dispatch.member.report.is_static:
                demand.went_elsewhere(asked)

        try:
            leg = await self.begin(call, tried, placed)
        except asyncio.CancelledError:
            demand.withdrew(asked, time.monotonic())
            raise
        except BaseException:
            demand.failed(asked)
            raise
        demand.began(asked, call.place.timeline.elapsed_ms() / 1000 if leg.response.is_stream else None)
        return leg

    async def begin(self, call: Call, tried: Tried, placed: Placed | None = None) -> Leg:
        """A member's first bytes. Members that fail are added to ``tried`` and never asked again."""
        admission = self._admission(call.model)
        while True:
            if tried.is_spent(self._max_attempts) or (tried and not self._has_other(call, tried)):
                raise NoReplica(f"{len(tried.names)} replicas have failed this request.", code="no_replica")
            dispatch = await admission.place(call.place, tried.names)
            if placed is not None:
                placed(dispatch)
            try:
                return await self._first_bytes(call, dispatch, tried)
            except PromptlyError as error:
                if tried.is_spent(self._max_attempts) or not _another_may_answer(call, error):
                    raise
                if not self._has_other(call, tried):
                    raise
                self._traffic.failovers += 1

    def _has_other(self, call: Call, tried: Tried) -> bool:
        """Whether somebody is left to ask, if not at this moment: one that refused a connection may be back
        in a second."""
        members = self._fleet.members(self._names.model_of(call.model))
        return any(
            may_take(m, call.place, tried.names) and m.report.state is EngineState.READY for m in members
        )

    async def _first_bytes(self, call: Call, dispatch: Dispatch, tried: Tried) -> Leg:
        hedge = self._hedge(call)
        after_s = None if hedge is None else hedge.begin()
        if hedge is None or after_s is None:
            return await self._send(call, dispatch, tried)
        return await self._hedged(call, dispatch, tried, hedge, after_s)

    def _admission(self, name: str) -> Admission:
        """Aliases and adapters go the way of their model: it is one fleet."""
        return self._admissions[self._names.model_of(name)]

    def _is_by_priority(self, call: Call, report: EngineReport) -> bool:
        """The member schedules by priority. Others refuse to be told one, and so may a server that is not
        ours."""
        return not report.is_static and self._names.model_of(call.model) in self._by_priority

    def _hedge(self, call: Call) -> Hedge | None:
        return self._hedges.get(self._names.model_of(call.model)) if call.may_hedge else None

    async def _hedged(
        self, call: Call, dispatch: Dispatch, tried: Tried, hedge: Hedge, after_s: float
    ) -> Leg:
        """The first of two to answer; the other one is cancelled, which aborts it at its engine."""
        legs: set[asyncio.Future[Leg]] = {asyncio.ensure_future(self._send(call, dispatch, tried))}
        try:
            done, _ = await asyncio.wait(legs, timeout=after_s)
            if not done:
                legs |= self._second(call, dispatch, tried, hedge)
            return await self._first_success(legs, dispatch)
        finally:
            for leg in legs:
                _abandon(leg)

    def _second(self, call: Call, first: Dispatch, tried: Tried, hedge: Hedge) -> set[asyncio.Future[Leg]]:
        if not hedge.may_hedge():
            return set()
        dispatch = self._admission(call.model).place_now(call.place, {*tried.names, first.member.name})
        if dispatch is None:
            return set()
        hedge.hedged()
        self._traffic.hedged += 1
        return {asyncio.ensure_future(self._send(call, dispatch, tried))}

    async def _first_success(self, legs: set[asyncio.Future[Leg]], first: Dispatch) -> Leg:
        pending = set(legs)
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            good = next((leg for leg in done if leg.exception() is None), None)
            if good is not None:
                legs.discard(good)
                won = good.result()
                self._traffic.hedge_wins += won.dispatch is not first
                return won
            if not pending:
                return next(iter(done)).result()  # raises

    async def _send(self, call: Call, dispatch: Dispatch, tried: Tried) -> Leg:
        """One member's first bytes, or why there are none."""
        admission, hedge, started_ns = self._admission(call.model), self._hedge(call), time.time_ns()
        try:
            # Behind a break, a kept connection would be a second chance to break this member.
            response = await self._request(call, dispatch, fresh=tried.broken > 0)
        except BaseException as error:
            self._note_failure(error, call, dispatch, tried, admission)
            if hedge is not None and isinstance(error, asyncio.CancelledError | UpstreamTimeout):
                hedge.saw_silence(time.monotonic() - dispatch.sent_at)
            admission.end(dispatch, complete=False)
            raise
        now = time.monotonic()
        self._fleet.first_byte(dispatch, now, streamed=response.is_stream)
        self._quarantine.answered(dispatch.member.name, now)
        if response.is_stream or call.purpose is Purpose.ANSWER:
            call.place.timeline.add("upstream-ttft", started_ns)
        if hedge is not None:
            hedge.saw_first_byte(time.monotonic() - dispatch.sent_at)
        stall_s = self._limits.between_tokens_timeout_s
        return Leg(
            call,
            dispatch,
            response,
            admission=admission,
            quarantine=self._quarantine,
            stall_s=stall_s,
        )

    def _note_failure(
        self, error: BaseException, call: Call, dispatch: Dispatch, tried: Tried, admission: Admission
    ) -> None:
        """A member that refuses connections is left alone for a moment; those who wait are told when it is
        over. One that was only abandoned has not failed."""
        name, now = dispatch.member.name, time.monotonic()
        if isinstance(error, ConnectionRefused):
            tried.refused(name)
            self._fleet.mark_unreachable(dispatch.member, now)
            asyncio.get_running_loop().call_later(UNREACHABLE_S + CLOCK_S, admission.wake)
        elif isinstance(error, PromptlyError):
            tried.failed(name)
            if _is_break(error):
                tried.broke(self._quarantine.broke(call.body_key, name, now, begun=False), begun=False)
            elif isinstance(error, UpstreamRefused):
                self._quarantine.answered(name, now)

    async def _request(self, call: Call, dispatch: Dispatch, *, fresh: bool) -> UpstreamResponse:
        report = dispatch.member.report
        by_priority = self._is_by_priority(call, report)
        message, relays = call.message, call.purpose is Purpose.RELAY
        # A whole answer begins when it is done: only the request's own deadline bounds it.
        limit_s = self._limits.first_token_timeout_s if message.streams else None
        try:
            async with asyncio.timeout(limit_s):
                response = await self._upstream.open(
                    report,
                    message.method,
                    message.target_for(report),
                    message.body_for(
                        report,
                        self._names.own(call.model),
                        by_priority=by_priority,
                        token_ids=call.resumes is not None and report.gives_token_ids,
                    ),
                    message.headers_for(priority=call.place.priority if by_priority else None),
                    fresh=fresh,
                )
                if response.status >= 400 or response.first.startswith(ERROR_EVENT):
                    raise await _refusal(response)
                if not relays and not response.first:
                    response.close()
                    raise UpstreamFailed("The engine's answer is empty.", code="upstream_failed")
                if not relays and not response.is_stream:
                    await response.load()  # as long as nothing was sent on, another member can be asked
                return response
        except TimeoutError:
            raise UpstreamTimeout(self._limits.first_token_timeout_s) from None


def _is_break(error: PromptlyError) -> bool:
    """The member may have died of the request. 502, 503 and 504 are said by what stands before one that is
    away, or by one that has too much to do."""
    if isinstance(error, EngineError):
        return error.engine_status == INTERNAL_ERROR
    return isinstance(error, ConnectionBroken)


def _another_may_answer(call: Call, error: PromptlyError) -> bool:
    """Whether the failure is the member's and not the request's, and the request may be sent again."""
    if isinstance(error, ConnectionRefused):
        return True
    if not call.failover:
        return False
    if isinstance(error, UpstreamRefused):
        return error.status == TOO_MANY_REQUESTS
    return isinstance(error, UpstreamFailed | UpstreamTimeout)


async def _refusal(response: UpstreamResponse) -> PromptlyError:
    """The engine's error, in OpenAI's shape whatever shape it came in."""
    try:
        if response.status < 400:
            # A stream that begins with an error is none: vLLM checks some values only when it starts one.
            status, content = stream_error(response.first, response.redactor)
            engine_status = INTERNAL_ERROR
        else:
            status = engine_status = response.status
            content = normalise_error(min(status, 502), await response.read(), response.redactor)
    finally:
        response.close()
    if status in NOT_FOR_US:  # the member's key is ours: the client has nothing to do with it
        return UpstreamFailed(f"The engine refused the gateway ({status}).", code="upstream_failed")
    if status >= 500:
        return EngineError(content, engine_status)
    retry = response.headers.get("retry-after")
    return UpstreamRefused(status, content, {} if retry is None else {"retry-after": retry})


def _abandon(leg: asyncio.Future[Leg]) -> None:
    """Cancel a leg that nobody waits for; close it if it came all the same."""

    def close(done: asyncio.Future[Leg]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    leg.cancel()
    leg.add_done_callback(close)
