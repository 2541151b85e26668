"""The way of a model's requests to its members: at once where there is room, else in line, else refused.

A request takes a place for each sequence that it has generated; tenants share the places fairly."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import mean

from deployments.gateway.placement.cold_start import ColdStart
from deployments.gateway.request.call import PlaceRequest
from serve_app.admission import DrainRate, FairLines, Ticket, most_for_one, reserved
from serve_app.autoscaling import Demand
from serve_app.errors import BadRequest, NoReplica, OverCapacity, PromptlyError
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


@dataclass(slots=True, eq=False)
class Waiter:
    """A call in line, and where its place is put when it comes. ``passed`` counts the places that others got
    while it was first and needed more than were free."""

    asked: PlaceRequest
    tried: frozenset[str]
    place: asyncio.Future[Dispatch]
    passed: int = 0


class Admission:
    """One model's members, lines and drain rate, as this gateway sees them. ``shared``: tenants have keys, so
    that none may take all places at once. ``cold_start`` is given where the model scales to zero, ``demand``
    where it scales."""

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
    ) -> None:
        self._model = model
        self._fleet = fleet
        self._router = router
        self._limits = limits
        self._traffic = traffic
        self._cold_start = cold_start
        self.demand = demand
        self._shared = shared
        self._line: FairLines[Waiter] = FairLines()
        self._waiting_places = 0
        self._drain = DrainRate()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def waiting_tokens(self) -> float:
        """Estimated prompt tokens of those in line."""
        return sum(ticket.request.asked.routing.prompt_tokens for ticket in self._line)

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

    async def place(self, asked: PlaceRequest, tried: Collection[str] = ()) -> Dispatch:
        """A place at a member that is not among ``tried``.

        Raises:
            OverCapacity: the line is too long, or did not move in time.
            NoReplica: no member can serve.
            BadRequest: it asks for more sequences at once than any member may give it.
        """
        self._line.came(asked.tenant, time.monotonic())
        self._refuse_if_too_heavy(asked)
        if not self._line:
            dispatch = self.place_now(asked, tried)
            if dispatch is not None:
                return dispatch
        priority = AGAIN if tried else asked.priority
        ahead = self._line.ahead_of(asked.tenant, priority)
        waiter = Waiter(asked, frozenset(tried), asyncio.get_running_loop().create_future())
        ticket = self._line.enter(asked.tenant, priority, waiter)
        self._waiting_places += asked.weight
        self.wake()  # those ahead may avoid the very members that have room
        if not waiter.place.done() and not tried:
            self._refuse_if_hopeless(ticket, ahead)
        return await self._wait(ticket)

    def place_now(self, asked: PlaceRequest, tried: Collection[str] = ()) -> Dispatch | None:
        """A place at the best member with room; ``None`` if there is none now, or none for its tenant."""
        now, started_ns = time.monotonic(), asked.timeline.clock()
        candidates = self._fleet.candidates(self._model, now)
        if not self._is_its_share(asked, candidates):
            return None
        members = [member for member in candidates if may_take(member, asked, tried)]
        routing = self._router.current(asked.routing)
        ordered = self._router.order(routing, members)
        best = next((member for member in ordered if member.room >= self._places(asked, member)), None)
        if best is None:
            return None
        if best.report.priority > MANAGED_PRIORITY:
            self.start_if_cold()
        self._router.sent(routing, best)
        asked.timeline.add("route", started_ns)
        places = self._places(asked, best)
        self._line.took(asked.tenant, places, now)
        tokens = routing.uncached_tokens(best)
        return self._fleet.send(best, tokens, now, places=places, tenant=asked.tenant)

    def _most(self, member: Member) -> int:
        """Of a member's places, those that one request may take."""
        return most_for_one(member.limit) if self._shared else member.limit

    def _places(self, asked: PlaceRequest, member: Member) -> int:
        return 1 if asked.weight == 1 else min(asked.weight, self._most(member))

    def _is_its_share(self, asked: PlaceRequest, candidates: Sequence[Member]) -> bool:
        """See ``FairLines.may_take``. A tenant that is alone is not counted after."""
        if not self._line.is_shared:
            return True
        return self._line.may_take(
            asked.tenant,
            min(asked.weight, max(map(self._most, candidates), default=1)),
            places=sum(member.limit for member in candidates),
            free=sum(member.room for member in candidates),
            reserve=sum(reserved(member.limit) for member in candidates),
        )

    def _refuse_if_too_heavy(self, asked: PlaceRequest) -> None:
        """Such a request would keep everybody else from a member until its last answer ends.

        Raises: BadRequest.
        """
        if asked.weight == 1 or asked.in_parts:
            return
        most = max((self._most(member) for member in self._fleet.members(self._model)), default=asked.weight)
        if asked.weight > most:
            raise BadRequest(
                f"The request asks for {asked.weight} answers at once (`n` times the prompts); "
                f"{self._model!r} gives one request at most {most}.",
                param=asked.weight_field,
                code="too_many_answers",
            )

    def end(self, dispatch: Dispatch, *, complete: bool) -> None:
        """Places are free again: the next ones go."""
        now = time.monotonic()
        self._fleet.end(dispatch, now, complete=complete)
        self._line.gave_back(dispatch.tenant, dispatch.places)
        if dispatch.first_byte_at is not None:  # else it failed: that says nothing of how fast answers end
            self._drain.departed(now, line_is_empty=not self._line, places=dispatch.places)
        self.wake()

    def wake(self) -> None:
        """Give places to those in line while there is room; start a replica for them where there is none."""
        if self._line and self._cold_start is not None:
            self.start_if_cold()
            if not self.is_cold:  # the pace of a line does not begin before there is one who serves
                self._drain.waits(time.monotonic())
        while self._line and self._give_one():
            pass

    def _give_one(self) -> bool:
        """A place to whose turn it is; whether somebody got one."""
        candidates = self._fleet.candidates(self._model, time.monotonic())
        if not any(member.room for member in candidates):
            return False
        blocked: list[Waiter] = []
        for line in self._line.turns():
            for ticket in line:
                waiter = ticket.request
                if waiter.place.done():
                    continue  # it has just given up and not left yet
                dispatch = self.place_now(waiter.asked, waiter.tried)
                if dispatch is not None:
                    self._leave(ticket)
                    waiter.place.set_result(dispatch)
                    for other in blocked:
                        other.passed += dispatch.places
                    return True
                if waiter.tried:
                    continue  # it avoids members: others of its tenant may pass it
                if self._is_its_share(waiter.asked, candidates):
                    if waiter.passed >= sum(member.limit for member in candidates):
                        return False  # it was passed often enough: places are kept until they suffice
                    blocked.append(waiter)
                break
        return False

    async def _wait(self, ticket: Ticket[Waiter]) -> Dispatch:
        waiter = ticket.request
        if waiter.place.done():
            return waiter.place.result()
        self._traffic.queued += 1
        if not self.is_cold:
            self._drain.waits(time.monotonic())
        bound, started_ns = self._patience_s(waiter.asked), waiter.asked.timeline.clock()
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
            waiter.asked.timeline.add("queue", started_ns)

    def _patience_s(self, asked: PlaceRequest) -> float:
        """How long a call may stand in line. Not its deadline: others may have joined, and whoever is late
        hears so from Exchange.run. But while the first replica starts, nothing else would come of giving up:
        then it may wait as long as whoever asked first."""
        if not self.is_cold:
            return self._limits.max_queue_wait_s
        return max(0.0, asked.deadline - time.monotonic() - ANSWER_S)

    def start_if_cold(self) -> None:
        """Ask for a replica where there is none."""
        if self._cold_start is not None and self.is_cold:
            self._cold_start.ask()

    def _withdraw(self, ticket: Ticket[Waiter]) -> None:
        """Leave the line; a place that came at the same moment is given back."""
        waiter = ticket.request
        if waiter.place.done() and not waiter.place.cancelled():
            self.end(waiter.place.result(), complete=False)
        elif self._line.contains(waiter.asked.tenant, ticket):
            self._leave(ticket)

    def _leave(self, ticket: Ticket[Waiter]) -> None:
        asked = ticket.request.asked
        self._line.leave(asked.tenant, ticket)
        self._waiting_places -= asked.weight

    def _too_late(self, ticket: Ticket[Waiter], waited_s: float) -> PromptlyError:
        if self.is_cold:
            message = f"{self._model!r} had no replica: one is starting, not ready after {waited_s:.1f} s."
            return NoReplica(message, code="model_starting")
        if not self._fleet.candidates(self._model, time.monotonic()):
            return NoReplica(f"No replica of {self._model!r} can take the request now.", code="no_replica")
        self._traffic.refused += 1
        ahead = self._line.ahead_of(ticket.request.asked.tenant, ticket.priority)
        return OverCapacity(
            f"No replica had room within {waited_s:.1f} s.",
            self._retry_after_s(ahead, ticket.request.asked.weight),
        )

    def _refuse_if_hopeless(self, ticket: Ticket[Waiter], ahead: int) -> None:
        """At once, so that a client can go elsewhere: it could not be served in time.

        Raises: OverCapacity.
        """
        wait_s = None if self.is_cold else self._expected_wait_s(ahead, ticket.request.asked.weight)
        too_many = ahead >= self._limits.max_queued_requests
        patience_s = min(self._limits.max_queue_wait_s, ticket.request.asked.deadline - time.monotonic())
        if not too_many and (wait_s is None or wait_s <= patience_s):
            return
        self._leave(ticket)
        self._traffic.refused += 1
        expected = "" if wait_s is None else f"; expected wait {wait_s:.1f} s"
        raise OverCapacity(
            f"{ahead} requests wait ahead{expected}.", self._retry_after_s(ahead, ticket.request.asked.weight)
        )

    def _expected_wait_s(self, ahead: int, weight: int) -> float | None:
        """Until the places of ``ahead`` requests and ``weight`` more are free; ``None`` while the rate is not
        known. Those ahead are taken to weigh what those in line do on average."""
        rate = self._rate()
        usual = self._waiting_places / len(self._line) if self._line else 1.0
        return None if rate is None else (ahead * usual + weight) / rate

    def _rate(self) -> float | None:
        """Places that come free per second: as measured; else by Little's law, from what this gateway has in
        flight and how long a request takes where that is known."""
        now = time.monotonic()
        measured = self._drain.per_second(now)
        if measured is not None:
            return measured
        members = self._fleet.candidates(self._model, now)
        known = [member.pace.service_s for member in members if member.pace.ends]
        return sum(member.in_flight for member in members) / mean(known) or None if known else None

    def _retry_after_s(self, ahead: int, weight: int) -> int:
        """When those ahead now will be gone; at least a second, which is the header's unit."""
        return max(1, math.ceil(self._expected_wait_s(ahead, weight) or 1))


def may_take(member: Member, asked: PlaceRequest, tried: Collection[str]) -> bool:
    """It has not failed this call, offers what is asked for, and understands it: only some can go on from
    tokens."""
    report = member.report
    return (
        member.name not in tried
        and asked.path in report.paths
        and (report.gives_token_ids or not asked.needs_token_ids)
    )
