"""The way of a model's requests to its members: at once where there is room, else in line, else refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from deployments.gateway.call import Call
from serve_app.admission import DrainRate, Ticket, WaitingLine
from serve_app.errors import NoReplica, OverCapacity, PromptlyError
from serve_app.fleet import Dispatch, FleetTable, Member
from serve_app.routing import Router
from serve_app.settings import LimitSettings
from serve_app.traffic import Traffic

AGAIN = -1
"""The priority of a request that a member has failed already: it was admitted once, it goes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A call in line, and where its place is put when it comes."""

    call: Call
    tried: frozenset[str]
    place: asyncio.Future[Dispatch]


class Admission:
    """One model's members, line and drain rate, as this gateway sees them."""

    def __init__(
        self, model: str, fleet: FleetTable, router: Router, limits: LimitSettings, traffic: Traffic
    ) -> None:
        self._model = model
        self._fleet = fleet
        self._router = router
        self._limits = limits
        self._traffic = traffic
        self._line: WaitingLine[Waiter] = WaitingLine()
        self._drain = DrainRate()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def has_room(self) -> bool:
        """A request could go to a member now."""
        candidates = self._fleet.candidates(self._model, time.monotonic())
        return not self._line and any(member.has_room for member in candidates)

    async def place(self, call: Call, tried: Collection[str] = ()) -> Dispatch:
        """A place at a member that is not among ``tried``.

        Raises:
            OverCapacity: the line is too long, or did not move in time.
            NoReplica: no member can serve.
        """
        priority = AGAIN if tried else call.priority
        if not self._line.ahead_of(priority):
            dispatch = self.place_now(call, tried)
            if dispatch is not None:
                return dispatch
        self._refuse_if_hopeless(call, priority)
        return await self._wait(Waiter(call, frozenset(tried), _future()), priority)

    def place_now(self, call: Call, tried: Collection[str] = ()) -> Dispatch | None:
        """A place at the best member with room; ``None`` if there is none now."""
        now = time.monotonic()
        with call.timeline.step("route"):
            members = [m for m in self._fleet.candidates(self._model, now) if _may_take(m, call, tried)]
            best = next((member for member in self._order(call, members) if member.has_room), None)
        if best is None:
            return None
        self._router.sent(call.routing, best)
        return self._fleet.send(best, call.routing.uncached_tokens(best), now)

    def end(self, dispatch: Dispatch, *, complete: bool) -> None:
        """A place is free again: the next one goes."""
        now = time.monotonic()
        self._fleet.end(dispatch, now, complete=complete)
        self._drain.departed(now, line_is_empty=not self._line)
        self.wake()

    def wake(self) -> None:
        """Give places to those in line while there is room."""
        for ticket in self._line:
            waiter = ticket.request
            dispatch = self.place_now(waiter.call, waiter.tried)
            if dispatch is not None:
                self._line.leave(ticket)
                waiter.place.set_result(dispatch)
            elif not waiter.tried:
                return  # no room for anybody; only one that avoids members may be passed over

    def _order(self, call: Call, members: list[Member]) -> list[Member]:
        return members if len(members) == 1 else self._router.order(call.routing, members)

    async def _wait(self, waiter: Waiter, priority: int) -> Dispatch:
        self._traffic.queued += 1
        self._drain.waits(time.monotonic())
        ticket = self._line.enter(priority, waiter)
        bound = min(self._limits.max_queue_wait_s, waiter.call.deadline - time.monotonic())
        started_ns = waiter.call.timeline.clock()
        try:
            async with asyncio.timeout(bound):
                return await waiter.place
        except TimeoutError:
            raise self._give_up(ticket, bound) from None
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        finally:
            waiter.call.timeline.add("queue", started_ns)

    def _give_up(self, ticket: Ticket[Waiter], waited_s: float) -> PromptlyError:
        self._withdraw(ticket)
        if not self._fleet.candidates(self._model, time.monotonic()):
            return NoReplica(f"No replica of {self._model!r} can take the request now.", code="no_replica")
        self._traffic.refused += 1
        return OverCapacity(
            f"No replica had room within {waited_s:g} s.", self._retry_after_s(len(self._line))
        )

    def _withdraw(self, ticket: Ticket[Waiter]) -> None:
        """Leave the line; a place that came at the same moment is given back."""
        place = ticket.request.place
        if place.done() and not place.cancelled():
            self.end(place.result(), complete=False)
        elif ticket in self._line:
            self._line.leave(ticket)

    def _refuse_if_hopeless(self, call: Call, priority: int) -> None:
        """At once, so that a client can go elsewhere: it could not be served in time.

        Raises: OverCapacity.
        """
        ahead = self._line.ahead_of(priority)
        wait_s = self._expected_wait_s(ahead)
        bound = min(self._limits.max_queue_wait_s, call.deadline - time.monotonic())
        if ahead >= self._limits.max_queued_requests or (wait_s is not None and wait_s > bound):
            self._traffic.refused += 1
            raise OverCapacity(
                f"{ahead} requests wait ahead; expected wait {wait_s or 0:.1f} s.", self._retry_after_s(ahead)
            )

    def _expected_wait_s(self, ahead: int) -> float | None:
        """Until ``ahead`` requests and one more have left; ``None`` while the rate is not known."""
        rate = self._rate()
        return None if rate is None else (ahead + 1) / rate

    def _rate(self) -> float | None:
        """Departures per second: as measured, else what the members' pace says."""
        now = time.monotonic()
        measured = self._drain.per_second(now)
        if measured is not None:
            return measured
        paced = [m for m in self._fleet.candidates(self._model, now) if m.pace.ends]
        return sum(m.limit / m.pace.service_s for m in paced) or None

    def _retry_after_s(self, ahead: int) -> int:
        """When those ahead now will be gone; at least a second, which is the header's unit."""
        return max(1, math.ceil(self._expected_wait_s(ahead) or 1))


def _may_take(member: Member, call: Call, tried: Collection[str]) -> bool:
    """It has not failed this call, and understands it: only some can go on from tokens."""
    return member.name not in tried and (member.report.gives_token_ids or not call.continues)


def _future() -> asyncio.Future[Dispatch]:
    return asyncio.get_running_loop().create_future()
