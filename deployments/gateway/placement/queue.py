"""The queue of one model: a request goes to a member at once where there is room, else it waits here, or is
refused.

A request takes room for each sequence that is generated for it; tenants share the room fairly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from deployments.gateway.placement.cold_start import ColdStart
from deployments.gateway.placement.room import Room, is_offered
from deployments.gateway.placement.wait_estimate import WaitEstimate
from deployments.gateway.request.call import SlotRequest
from serve_app.admission import NOTHING, FairQueues, Spent, Ticket
from serve_app.autoscaling import Demand
from serve_app.errors import NoReplica, OverCapacity, PromptlyError
from serve_app.fleet import UNREACHABLE_S, Dispatch, FleetTable, Member
from serve_app.openai.usage import NO_TOKENS, TokenCounts
from serve_app.routing import Router
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

ANSWER_S = 0.1
"""Seconds of a deadline that are reserved for sending the error, if it cannot be met."""

AGAIN = -1
"""The priority of a request that a member has failed already: it was admitted once, so it goes first."""

CLOCK_S = 0.01
"""An event loop's timer may run this much ahead of the clock."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A request in the queue, and the future for its slot. ``passed`` counts the slots that other requests
    got while it was first and needed more than were free."""

    asked: SlotRequest
    tried: frozenset[str]
    slot: asyncio.Future[Dispatch]
    passed: int = 0


class Admission:
    """One model's room and queue, as this gateway sees them. ``shared``: tenants have keys, so none may take
    all room at once. ``cold_start`` is given where the model scales to zero, ``demand`` where it scales.
    ``part_of``: how much of a limit of the application is this gateway's.

    It is long because entering, waiting and leaving change the same queue.
    """

    def __init__(
        self,
        model: str,
        fleet: FleetTable,
        router: Router,
        limits: LimitSettings,
        traffic: Traffic,
        *,
        shared: bool = False,
        cold_start: ColdStart | None = None,
        demand: Demand | None = None,
        part_of: Callable[[int], int] = int,
    ) -> None:
        self._model, self._limits, self._part_of = model, limits, part_of
        self._traffic = traffic
        self.demand = demand
        self._queue: FairQueues[Waiter] = FairQueues(limits.tenant_weights)
        self._waiting_slots = 0
        self.room = Room(model, fleet, router, self._queue, is_shared=shared, cold_start=cold_start)
        self._estimate = WaitEstimate(self.room)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def waiting_tokens(self) -> float:
        """Estimated prompt tokens of the requests in the queue."""
        return sum(ticket.request.asked.routing.prompt_tokens for ticket in self._queue)

    def has_room(self, tenant: str, weight: int = 1) -> bool:
        """A request of the tenant could go to a member now. That others wait, for room that they may not
        take, changes nothing for it."""
        if self._queue and (not self._queue.is_shared or self._queue.waits(tenant)):
            return False
        return self.room.is_free(tenant, weight)

    async def place(self, asked: SlotRequest, tried: Collection[str] = ()) -> Dispatch:
        """Room at a member that is not among ``tried``.

        Raises:
            OverCapacity: the queue is too long, or did not move in time.
            NoReplica: no member can serve.
            BadRequest: it asks for more sequences at once than any member may give it.
        """
        self._queue.came(asked.tenant, time.monotonic())
        if asked.weight != 1:
            self.room.refuse_if_too_heavy(asked)
        if not self._queue:
            dispatch = self.room.take(asked, tried)
            if dispatch is not None:
                return dispatch
        priority = AGAIN if tried else asked.priority
        ahead = self._queue.ahead_of(asked.tenant, priority)
        waiter = Waiter(asked, frozenset(tried), asyncio.get_running_loop().create_future())
        ticket = self._queue.enter(asked.tenant, priority, waiter)
        self._waiting_slots += asked.weight
        self.wake()  # requests ahead may avoid the very members that have room
        if not waiter.slot.done() and not tried:
            self._refuse_if_hopeless(ticket, ahead)
        return await self._wait(ticket)

    # ---- what becomes of a slot ----

    def began(self, dispatch: Dispatch, now: float, *, streamed: bool) -> None:
        """The first byte of the answer is there."""
        self.room.fleet.first_byte(dispatch, now, streamed=streamed)

    def unreachable(self, member: Member) -> None:
        """A member refused a connection: it gets no requests for a moment; then the queue is woken."""
        self.room.fleet.mark_unreachable(member, time.monotonic())
        asyncio.get_running_loop().call_later(UNREACHABLE_S + CLOCK_S, self.wake)

    def end(self, dispatch: Dispatch, *, complete: bool, tokens: TokenCounts = NO_TOKENS) -> None:
        """The request's slots are free again; waiting requests get them. Its tenant pays for the ``tokens``
        that are known, and for the prompt that was sent."""
        now = time.monotonic()
        prompt = dispatch.prompt_tokens if tokens.prompt is None else tokens.prompt
        held_s = (now - dispatch.sent_at) * dispatch.slots
        self._free(dispatch, now, Spent(prompt, tokens.output, held_s), complete=complete)

    def _free(self, dispatch: Dispatch, now: float, spent: Spent, *, complete: bool) -> None:
        self.room.give_back(dispatch, now, spent, complete=complete)
        self._estimate.departed(dispatch, now, queue_is_empty=not self._queue)
        if self._queue:
            self.wake()

    # ---- the queue ----

    def wake(self) -> None:
        """Give room to waiting requests while there is some; start a replica for them if there is none."""
        if self._queue and self.room.scales_to_zero:
            self.room.start_if_cold()
            if not self.room.is_cold:  # the rate is measured only once a replica serves
                self._estimate.waiting()
        while self._queue and self._give_one():
            pass

    def _give_one(self) -> bool:
        """Give room to the request whose turn it is; whether one got some."""
        candidates = self.room.candidates()
        if not any(member.room for member in candidates):
            return False
        blocked: list[Waiter] = []
        for tickets in self._queue.turns():
            for ticket in tickets:
                waiter = ticket.request
                if waiter.slot.done():
                    continue  # it has just given up and not left yet
                dispatch = self.room.take(waiter.asked, waiter.tried)
                if dispatch is not None:
                    self._leave(ticket)
                    waiter.slot.set_result(dispatch)
                    for other in blocked:
                        other.passed += dispatch.slots
                    return True
                if waiter.tried or not is_offered(waiter.asked, candidates):
                    continue  # it avoids those that have room: others of its tenant may pass it
                if self.room.is_within_share(waiter.asked.tenant, waiter.asked.weight, candidates):
                    if waiter.passed >= sum(member.limit for member in candidates):
                        return False  # it was passed often enough: room is kept until it suffices
                    blocked.append(waiter)
                break
        return False

    async def _wait(self, ticket: Ticket[Waiter]) -> Dispatch:
        waiter = ticket.request
        if waiter.slot.done():
            return waiter.slot.result()
        self._traffic.queued += 1
        if not self.room.is_cold:
            self._estimate.waiting()
        bound, started_ns = self._patience_s(waiter.asked), waiter.asked.timeline.clock()
        try:
            async with asyncio.timeout(bound):
                return await waiter.slot
        except TimeoutError:
            self._withdraw(ticket)
            raise self._too_late(ticket, bound) from None
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        finally:
            waiter.asked.timeline.add("queue", started_ns)

    def _patience_s(self, asked: SlotRequest) -> float:
        """How long a request may wait in the queue. Not until its deadline: other clients may have joined,
        and ``Exchange.run`` tells each of them when theirs has passed. But while the first replica starts,
        giving up would bring nothing: then it may wait until the deadline of the client that asked first."""
        if not self.room.is_cold:
            return self._limits.max_queue_wait_s
        return max(0.0, asked.deadline - time.monotonic() - ANSWER_S)

    def _withdraw(self, ticket: Ticket[Waiter]) -> None:
        """Leave the queue; room that came at the same moment is given back."""
        waiter = ticket.request
        if waiter.slot.done() and not waiter.slot.cancelled():
            self._free(waiter.slot.result(), time.monotonic(), NOTHING, complete=False)
        elif self._queue.contains(waiter.asked.tenant, ticket):
            self._leave(ticket)

    def _leave(self, ticket: Ticket[Waiter]) -> None:
        asked = ticket.request.asked
        self._queue.leave(asked.tenant, ticket)
        self._waiting_slots -= asked.weight

    # ---- refusals ----

    def _too_late(self, ticket: Ticket[Waiter], waited_s: float) -> PromptlyError:
        if self.room.is_cold:
            message = f"{self._model!r} had no replica: one is starting, not ready after {waited_s:.1f} s."
            return NoReplica(message, code="model_starting")
        if not self.room.candidates():
            return NoReplica(f"No replica of {self._model!r} can take the request now.", code="no_replica")
        self._traffic.refused += 1
        asked = ticket.request.asked
        ahead = self._sequences(self._queue.ahead_of(asked.tenant, ticket.priority), asked)
        retry_after_s = self._estimate.retry_after_s(ahead)
        return OverCapacity(f"No replica had room within {waited_s:.1f} s.", retry_after_s)

    def _refuse_if_hopeless(self, ticket: Ticket[Waiter], ahead: int) -> None:
        """Refuse a request at once if it could not be served in time, so that its client can go elsewhere.

        Raises: OverCapacity.
        """
        asked = ticket.request.asked
        wait_s = None if self.room.is_cold else self._estimate.seconds(self._sequences(ahead, asked))
        patience_s = min(self._limits.max_queue_wait_s, asked.deadline - time.monotonic())
        fits = ahead < self._part_of(self._limits.max_queued_requests)
        if fits and (wait_s is None or wait_s <= patience_s):
            return
        self._leave(ticket)
        self._traffic.refused += 1
        expected = "" if wait_s is None else f"; expected wait {wait_s:.1f} s"
        retry_after_s = self._estimate.retry_after_s(self._sequences(ahead, asked))
        raise OverCapacity(f"{ahead} requests wait ahead{expected}.", retry_after_s)

    def _sequences(self, ahead: int, asked: SlotRequest) -> float:
        """How many ``ahead`` requests and this one generate. Those ahead are assumed to be like the queue's
        average."""
        usual = self._waiting_slots / len(self._queue) if self._queue else 1.0
        return ahead * usual + asked.weight
