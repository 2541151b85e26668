"""One request's attempts: another member if one fails before the first byte, a second one if it is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from deployments.gateway.request.call import Call, Purpose
from deployments.gateway.send.attempt import Attempt
from deployments.gateway.send.sender import INTERNAL_ERROR, Destination, Sender
from deployments.wire.upstream import ConnectionBroken, ConnectionRefused, UpstreamResponse
from serve_app.errors import (
    EngineError,
    NoReplica,
    PromptlyError,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
)
from serve_app.fleet import Dispatch
from serve_app.hedging import Hedge
from serve_app.quarantine import Quarantine
from serve_app.request.failover import Tried
from serve_app.request.timing import FIRST_BYTE, Timeline
from serve_app.traffic import Traffic

TOO_MANY_REQUESTS = 429

COMPANY_S = 0.1
"""How long the other streams of a member that died may take to notice it, before a request that lost two
streams is blamed for both."""

Placed = Callable[[Dispatch], None]
"""Called with every slot that a call gets."""


class Attempts:
    """All attempts of one request, including those that continue its stream. ``tried`` holds the members
    that failed it, at most ``most`` of them."""

    def __init__(
        self, to: Destination, sender: Sender, quarantine: Quarantine, traffic: Traffic, most: int
    ) -> None:
        self.tried = Tried()
        self._to = to
        self._sender = sender
        self._quarantine = quarantine
        self._traffic = traffic
        self._most = most

    async def begin(self, call: Call, placed: Placed | None = None) -> Attempt:
        """An attempt whose first bytes have arrived. Members that failed are never asked again.

        Raises:
            UpstreamRefused: an engine refuses the request itself; no other one would accept it.
            OverCapacity, NoReplica, UpstreamFailed, UpstreamTimeout: no member answered.
        """
        tried = self.tried
        if tried.may_be_innocent:
            await asyncio.sleep(COMPANY_S)
        if tried.names and not self._may_go_on(call):
            raise NoReplica(f"{len(tried.names)} replicas have failed this request.", code="no_replica")
        while True:
            dispatch = await self._to.admission.place(call.slot, tried.names)
            if placed is not None:
                placed(dispatch)
            try:
                hedge = self._to.hedge if call.may_hedge else None
                after_s = None if hedge is None else hedge.begin()
                if hedge is None or after_s is None:
                    return await self._send(call, dispatch, hedge)
                return await self._hedged(call, dispatch, hedge, after_s)
            except PromptlyError as error:
                if not _another_may_answer(call, error) or not self._may_go_on(call):
                    raise
                self._traffic.failovers += 1

    def _may_go_on(self, call: Call) -> bool:
        """Another attempt is allowed, and there is a member for it, if perhaps not yet."""
        if self.tried.is_spent(self._most):
            return False
        return self._to.admission.room.has_other(call.slot, self.tried)

    async def _hedged(self, call: Call, dispatch: Dispatch, hedge: Hedge, after_s: float) -> Attempt:
        """The first of two attempts to answer; the other one is cancelled, which aborts it at its engine."""
        attempts = {asyncio.ensure_future(self._send(call, dispatch, hedge))}
        try:
            done, _ = await asyncio.wait(attempts, timeout=after_s)
            second = None if done else self._second_place(call, dispatch, hedge)
            if second is not None:
                attempts.add(asyncio.ensure_future(self._send(call, second, hedge)))
            first = await _first_success(attempts)
            self._traffic.hedge_wins += first.dispatch is not dispatch
            return first
        finally:
            for attempt in attempts:
                _abandon(attempt)

    def _second_place(self, call: Call, first: Dispatch, hedge: Hedge) -> Dispatch | None:
        if not hedge.may_hedge():
            return None
        avoided = {*self.tried.names, first.member.name}
        dispatch = self._to.admission.room.take(call.slot, avoided)
        if dispatch is not None:
            hedge.hedged()
            self._traffic.hedged += 1
        return dispatch

    async def _send(self, call: Call, dispatch: Dispatch, hedge: Hedge | None) -> Attempt:
        admission, started_ns = self._to.admission, call.slot.timeline.clock()
        if call.slot.account is not None:
            call.slot.account.members.asked()
        try:
            # After a break, a kept connection would be a second chance to break this member.
            fresh = bool(self.tried.names) and self.tried.broken > 0
            response = await self._sender.send(call, self._to, dispatch.member.report, fresh=fresh)
        except BaseException as error:
            self._note_failure(error, call, dispatch)
            _add_ended(call.slot.timeline, error, started_ns)
            if hedge is not None and isinstance(error, asyncio.CancelledError | UpstreamTimeout):
                hedge.saw_silence(time.monotonic() - dispatch.sent_at)
            admission.end(dispatch, complete=False)
            raise
        now = time.monotonic()
        admission.began(dispatch, now, streamed=response.is_stream)
        self._quarantine.answered(dispatch.member.name, now)
        upstream_ns = _add_begun(call, response, started_ns)
        if hedge is not None:
            hedge.saw_first_byte(now - dispatch.sent_at)
        return Attempt(
            call,
            dispatch,
            response,
            admission=admission,
            quarantine=self._quarantine,
            stall_s=self._sender.stall_s,
            started_ns=upstream_ns,
        )

    def _note_failure(self, error: BaseException, call: Call, dispatch: Dispatch) -> None:
        """A member that refuses connections gets none for a moment. An attempt that was only abandoned is no
        failure of its member."""
        name, now = dispatch.member.name, time.monotonic()
        if isinstance(error, PromptlyError) and call.slot.account is not None:
            call.slot.account.members.unanswered()
        if isinstance(error, ConnectionRefused):
            self.tried.refused(name)
            self._to.admission.unreachable(dispatch.member)
        elif isinstance(error, PromptlyError):
            self.tried.failed(name)
            if _is_break(error):
                self.tried.broke(self._quarantine.broke(call.body_key, name, now, begun=False), begun=False)
            elif isinstance(error, UpstreamRefused):
                self._quarantine.answered(name, now)


def _add_ended(timeline: Timeline, error: BaseException, started_ns: int) -> None:
    """The step of an attempt that gave no answer."""
    if isinstance(error, PromptlyError):
        timeline.add("upstream-failed", started_ns)
    elif isinstance(error, asyncio.CancelledError):  # a deadline passed, or another attempt answered
        timeline.add("upstream-left", started_ns)


def _add_begun(call: Call, response: UpstreamResponse, started_ns: int) -> int:
    """The steps until an answer begins. Returns since when the step `upstream` counts."""
    timeline = call.slot.timeline
    if response.connect_ns:
        timeline.add_lasting("connect", started_ns, response.connect_ns)
    if not response.is_stream and call.purpose is not Purpose.ANSWER:
        return started_ns  # nothing is generated: there is no first token to tell from the rest
    timeline.add(FIRST_BYTE, started_ns)
    return timeline.clock()


def _is_break(error: PromptlyError) -> bool:
    """The member may have died of the request. 502, 503 and 504 come from a proxy in front of a member that
    is away, or from one that is overloaded."""
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


async def _first_success(attempts: set[asyncio.Task[Attempt]]) -> Attempt:
    """The first attempt that succeeds leaves ``attempts``. Raises what one of them raised if all fail."""
    pending = set(attempts)
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        good = next((attempt for attempt in done if attempt.exception() is None), None)
        if good is not None:
            attempts.discard(good)
            return good.result()
        if not pending:
            return next(iter(done)).result()  # raises


def _abandon(attempt: asyncio.Task[Attempt]) -> None:
    """Cancel an attempt; close its answer if that came all the same."""

    def close(done: asyncio.Task[Attempt]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    attempt.cancel()
    attempt.add_done_callback(close)
