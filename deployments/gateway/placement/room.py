"""Room at one model's members: which member a request goes to, and how much of it one request may take."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from deployments.gateway.placement.cold_start import ColdStart
from deployments.gateway.request.call import SlotRequest
from serve_app.admission import FairQueues, Spent, most_for_one, reserved
from serve_app.errors import BadRequest
from serve_app.fleet import Dispatch, EngineState, FleetTable, Member
from serve_app.request.failover import Tried
from serve_app.routing import Router

MANAGED_PRIORITY = 0
"""The priority of managed replicas; upstreams with a higher number serve while no replica can."""


class Room:
    """``shares`` counts what each tenant holds; with ``is_shared`` tenants have keys, and none may take all
    of a member at once. ``cold_start`` is given where the model scales to zero."""

    def __init__(
        self,
        model: str,
        fleet: FleetTable,
        router: Router,
        shares: FairQueues[Any],
        *,
        is_shared: bool,
        cold_start: ColdStart | None,
    ) -> None:
        self.model = model
        self.fleet = fleet
        self._router = router
        self._shares = shares
        self._is_shared = is_shared
        self._cold_start = cold_start

    @property
    def scales_to_zero(self) -> bool:
        return self._cold_start is not None

    @property
    def is_cold(self) -> bool:
        """The model is scaled to zero: a replica has to start before one can serve."""
        if self._cold_start is None:
            return False
        return all(member.report.is_static for member in self.candidates())

    def start_if_cold(self) -> None:
        """Ask for a replica where there is none."""
        if self._cold_start is not None and self.is_cold:
            self._cold_start.ask()

    def candidates(self) -> tuple[Member, ...]:
        return self.fleet.candidates(self.model, time.monotonic())

    def is_free(self, tenant: str, weight: int) -> bool:
        """Some member has room for ``weight`` sequences now, and the tenant may take it."""
        candidates = self.candidates()
        if not any(member.room >= min(weight, self._most(member)) for member in candidates):
            return False
        return self.is_within_share(tenant, weight, candidates)

    def has_other(self, asked: SlotRequest, tried: Tried) -> bool:
        """Whether a member is left to ask, if not at this moment: one that refused a connection may be back
        in a second."""
        ready = (m for m in self.fleet.members(self.model) if m.report.state is EngineState.READY)
        return any(_may_serve(member, asked, tried.names) for member in ready)

    def take(self, asked: SlotRequest, tried: Collection[str]) -> Dispatch | None:
        """Room at the best member; ``None`` if there is none now, or the tenant's share is used up."""
        now, started_ns = time.monotonic(), asked.timeline.clock()
        candidates = self.fleet.candidates(self.model, now)
        if self._shares.is_shared and not self.is_within_share(asked.tenant, asked.weight, candidates):
            return None
        members = [member for member in candidates if _may_serve(member, asked, tried)]
        routing = self._router.current(asked.routing)
        for best in self._router.order(routing, members):
            slots = 1 if asked.weight == 1 else min(asked.weight, self._most(best))
            if best.room >= slots:
                break
        else:
            return None
        if best.report.priority > MANAGED_PRIORITY:
            self.start_if_cold()
        self._router.sent(routing, best)
        asked.timeline.add("route", started_ns)
        tokens = routing.uncached_tokens(best)
        dispatch = self.fleet.send(best, tokens, now, slots=slots, tenant=asked.tenant)
        dispatch.prompt_tokens = routing.prompt_tokens
        dispatch.charged = self._shares.took(asked.tenant, slots, now, routing.prompt_tokens)
        return dispatch

    def give_back(self, dispatch: Dispatch, now: float, spent: Spent, *, complete: bool) -> None:
        self.fleet.end(dispatch, now, complete=complete)
        self._shares.gave_back(dispatch.tenant, dispatch.slots, dispatch.charged, spent)

    def is_within_share(self, tenant: str, weight: int, candidates: Sequence[Member]) -> bool:
        """See ``FairQueues.may_take``. A tenant that is alone has no limit."""
        if not self._shares.is_shared:
            return True
        return self._shares.may_take(
            tenant,
            min(weight, max(map(self._most, candidates), default=1)),
            slots=sum(member.limit for member in candidates),
            free=sum(member.room for member in candidates),
            reserve=sum(reserved(member.limit) for member in candidates),
        )

    def refuse_if_too_heavy(self, asked: SlotRequest) -> None:
        """Such a request would keep all others from a member until its last answer ends.

        Raises: BadRequest.
        """
        if asked.in_parts:
            return
        most = max((self._most(member) for member in self.fleet.members(self.model)), default=asked.weight)
        if asked.weight > most:
            raise BadRequest(
                f"The request asks for {asked.weight} answers at once (`n` times the prompts); "
                f"{self.model!r} gives one request at most {most}.",
                param=asked.weight_field,
                code="too_many_answers",
            )

    def _most(self, member: Member) -> int:
        """How much of a member's room one request may take."""
        return most_for_one(member.limit) if self._is_shared else member.limit


def is_offered(asked: SlotRequest, candidates: Iterable[Member]) -> bool:
    """Some member that has room takes requests of this kind; whether the room suffices is not asked."""
    return any(member.room and _may_serve(member, asked, ()) for member in candidates)


def _may_serve(member: Member, asked: SlotRequest, tried: Collection[str]) -> bool:
    """It has not failed this request, offers its path, and can do what going on with a stream needs."""
    report = member.report
    return (
        member.name not in tried
        and asked.path in report.paths
        and (report.gives_token_ids or not asked.needs_token_ids)
        and (report.resumes_chats or not asked.needs_resuming)
    )
