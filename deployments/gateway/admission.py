"""The way of a model's requests to its members: at once where there is room, else in line, else refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean

from deployments.gateway.call import Call
from deployments.gateway.cold_start import ColdStart
from serve_app.admission import DrainRate, Ticket, WaitingLine
from serve_app.autoscaling import Demand
from serve_app.errors import NoReplica, OverCapacity, PromptlyError
from serve_app.fleet import Dispatch, FleetTable, Member
from serve_app.routing import Router
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

MANAGED_PRIORITY = 0
"""Of managed replicas; upstreams with a higher number serve in their place."""

ANSWER_S = 0.1
"""Left of a deadline to say why it is not kept."""

AGAIN = -1
"""The priority of a request that a member has failed already: it was admitted once, it goes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A call in line, and where its place is put when it comes."""

    call: Call
    tried: frozenset[str]
    place: asyncio.Future[Dispatch]


class Admission:
    """One model's members, line and drain rate, as this gateway sees them. ``cold_start`` is given where the
    model scales to zero, ``demand`` where it scales."""

    def __init__(
        self,
        model: str,
        fleet: FleetTable,
        router: Router,
        limits: LimitSettings,
        traffic: Traffic,
        *,
        cold_start: ColdStart | None = None,
        demand: Demand | None = None,
    ) -> None:
        self._model = model
        self._fleet = fleet
        self._router = router
        self._limits = limits
        self._traffic = traffic
        self._cold_start = cold_start
        self.demand = demand
        self._line: WaitingLine[Waiter] = WaitingLine()
        self._drain = DrainRate()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def waiting_tokens(self) -> float:
        """Estimated prompt tokens of those in line."""
        return sum(ticket.request.call.routing.prompt_tokens for ticket in self._line)

    @property
    def is_cold(self) -> bool:
        """The model is scaled to zero: a replica has to start before one can serve."""
        if self._cold_start is None:
            return False
        candidates = self._fleet.candidates(self._model, time.monotonic())
        return all(member.report.is_static for member in candidates)

    def has_room(self) -> bool:
        """A request could go to a member now."""
        return not self._line and self._any_room()

    def _any_room(self) -> bool:
        return any(member.has_room for member in self._fleet.candidates(self._model, time.monotonic()))

    async def place(self, call: Call, tried: Collection[str] = ()) -> Dispatch:
        """A place at a member that is not among ``tried``.

        Raises:
            OverCapacity: the line is too long, or did not move in time.
            NoReplica: no member can serve.
        """
        priority = AGAIN if tried else call.priority
        ahead = self._line.ahead_of(priority)
        if not ahead:
            dispatch = self.place_now(call, tried)
            if dispatch is not None:
                return dispatch
        waiter = Waiter(call, frozenset(tried), asyncio.get_running_loop().create_future())
        ticket = self._line.enter(priority, waiter)
        self.wake()  # those ahead may avoid the very members that have room
        if not waiter.place.done() and not tried:
            self._refuse_if_hopeless(ticket, ahead)
        return await self._wait(ticket)

    def place_now(self, call: Call, tried: Collection[str] = ()) -> Dispatch | None:
        """A place at the best member with room; ``None`` if there is none now."""
        now, started_ns = time.monotonic(), call.timeline.clock()
        members = [m for m in self._fleet.candidates(self._model, now) if may_take(m, call, tried)]
        routing = self._router.current(call.routing)
        best = next((member for member in self._router.order(routing, members) if member.has_room), None)
        if best is None:
            return None
        if best.report.priority > MANAGED_PRIORITY:
            self.start_if_cold()
        self._router.sent(routing, best)
        call.timeline.add("route", started_ns)
        return self._fleet.send(best, routing.uncached_tokens(best), now)

    def end(self, dispatch: Dispatch, *, complete: bool) -> None:
        """A place is free again: the next one goes."""
        now = time.monotonic()
        self._fleet.end(dispatch, now, complete=complete)
        if dispatch.first_byte_at is not None:  # else it failed: that says nothing of how fast answers end
            self._drain.departed(now, line_is_empty=not self._line)
        self.wake()

    def wake(self) -> None:
        """Give places to those in line while there is room; start a replica for them where there is none."""
        if self._line and self._cold_start is not None:
            self.start_if_cold()
            if not self.is_cold:  # the pace of a line does not begin before there is one who serves
                self._drain.waits(time.monotonic())
        stuck: set[str] = set()
        for ticket in self._line:
            waiter = ticket.request
            if waiter.place.done() or (waiter.call.path in stuck and not waiter.tried):
                continue  # it has a place, or has just given up and not left yet; or it is as one before it
            dispatch = self.place_now(waiter.call, waiter.tried)
            if dispatch is not None:
                self._line.leave(ticket)
                waiter.place.set_result(dispatch)
            elif not waiter.tried:
                if not self._any_room():
                    return
                stuck.add(waiter.call.path)  # those that have room do not offer it: others go first

    async def _wait(self, ticket: Ticket[Waiter]) -> Dispatch:
        waiter = ticket.request
        if waiter.place.done():
            return waiter.place.result()
        self._traffic.queued += 1
        if not self.is_cold:
            self._drain.waits(time.monotonic())
        bound, started_ns = self._patience_s(waiter.call), waiter.call.timeline.clock()
        try:
            async with asyncio.timeout(bound):
                return await waiter.place
        except TimeoutError:
            self._withdraw(ticket)
            raise self._too_late(ticket, bound) from None
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        finally:
            waiter.call.timeline.add("queue", started_ns)

    def _patience_s(self, call: Call) -> float:
        """How long a call may stand in line. Not its deadline: others may have joined, and whoever is late
        hears so from Exchange.run. But while the first replica starts, nothing else would come of giving up:
        then it may wait as long as whoever asked first."""
        if not self.is_cold:
            return self._limits.max_queue_wait_s
        return max(0.0, call.deadline - time.monotonic() - ANSWER_S)

    def start_if_cold(self) -> None:
        """Ask for a replica where there is none."""
        if self._cold_start is not None and self.is_cold:
            self._cold_start.ask()

    def _withdraw(self, ticket: Ticket[Waiter]) -> None:
        """Leave the line; a place that came at the same moment is given back."""
        place = ticket.request.place
        if place.done() and not place.cancelled():
            self.end(place.result(), complete=False)
        elif ticket in self._line:
            self._line.leave(ticket)

    def _too_late(self, ticket: Ticket[Waiter], waited_s: float) -> PromptlyError:
        if self.is_cold:
            message = f"{self._model!r} had no replica: one is starting, not ready after {waited_s:.1f} s."
            return NoReplica(message, code="model_starting")
        if not self._fleet.candidates(self._model, time.monotonic()):
            return NoReplica(f"No replica of {self._model!r} can take the request now.", code="no_replica")
        self._traffic.refused += 1
        ahead = self._line.ahead_of(ticket.priority)
        return OverCapacity(f"No replica had room within {waited_s:.1f} s.", self._retry_after_s(ahead))

    def _refuse_if_hopeless(self, ticket: Ticket[Waiter], ahead: int) -> None:
        """At once, so that a client can go elsewhere: it could not be served in time.

        Raises: OverCapacity.
        """
        wait_s = None if self.is_cold else self._expected_wait_s(ahead)
        too_many = ahead >= self._limits.max_queued_requests
        patience_s = min(self._limits.max_queue_wait_s, ticket.request.call.deadline - time.monotonic())
        if not too_many and (wait_s is None or wait_s <= patience_s):
            return
        self._line.leave(ticket)
        self._traffic.refused += 1
        expected = "" if wait_s is None else f"; expected wait {wait_s:.1f} s"
        raise OverCapacity(f"{ahead} requests wait ahead{expected}.", self._retry_after_s(ahead))

    def _expected_wait_s(self, ahead: int) -> float | None:
        """Until ``ahead`` requests and one more have left; ``None`` while the rate is not known."""
        rate = self._rate()
        return None if rate is None else (ahead + 1) / rate

    def _rate(self) -> float | None:
        """Departures per second: as measured; else by Little's law, from what this gateway has in flight and
        how long a request takes where that is known."""
        now = time.monotonic()
        measured = self._drain.per_second(now)
        if measured is not None:
            return measured
        members = self._fleet.candidates(self._model, now)
        known = [member.pace.service_s for member in members if member.pace.ends]
        return sum(member.in_flight for member in members) / mean(known) or None if known else None

    def _retry_after_s(self, ahead: int) -> int:
        """When those ahead now will be gone; at least a second, which is the header's unit."""
        return max(1, math.ceil(self._expected_wait_s(ahead) or 1))


def may_take(member: Member, call: Call, tried: Collection[str]) -> bool:
    """It has not failed this call, offers what is asked for, and understands it: only some can go on from
    tokens."""
    report = member.report
    return (
        member.name not in tried
        and call.path in report.paths
        and (report.gives_token_ids or not call.continues)
    )
