"""The fleet table of one gateway: the only owner of member state. No clock: callers pass ``now``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from serve_app.fleet.members import ALL, EngineReport, Member
from serve_app.fleet.pace import Pace
from serve_app.gateways.shares import Share

UNREACHABLE_S = 1.0
"""After a refused connection the member gets no requests for this long, unless it reports as a new one."""


@dataclass(slots=True)
class Dispatch:
    """One request at one member. ``tokens`` estimates its uncached prompt, ``tokens_ahead`` that plus the
    prompts that this gateway had sent there and that are not answered; ``queued``: the member was at its
    capacity. Times are monotonic seconds; ``began_at`` is when the engine began to run it, if that can be
    known. ``slots`` is how many it takes (one for each sequence), ``tenant`` whose they are,
    ``prompt_tokens`` an estimate of its whole prompt, ``charged`` what the tenant was charged for it."""

    member: Member
    tokens: float
    tokens_ahead: float
    queued: bool
    sent_at: float
    first_byte_at: float | None = None
    began_at: float | None = None
    slots: int = 1
    tenant: str = ""
    prompt_tokens: float = 0.0
    charged: float = 0.0


class FleetTable:
    """Members by model. ``send``, ``first_byte`` and ``end`` follow each request. It is one class because all
    its methods change the same members, and the members have one owner.

    ``limits`` bounds the slots taken at once at one managed replica, by model; ``None`` means the replica's
    own capacity, which always applies to external upstreams. Models in ``may_be_empty`` are ready without a
    member: their fleet may be scaled to zero while idle. ``share``: this gateway's part of what several use.
    """

    def __init__(
        self,
        limits: Mapping[str, int | None],
        may_be_empty: Collection[str] = (),
        share: Share | None = None,
    ) -> None:
        self._share = Share("") if share is None else share
        self._limits = dict(limits)
        self._may_be_empty = frozenset(may_be_empty)
        self._members: dict[str, dict[str, Member]] = {model: {} for model in limits}
        self._turns = dict.fromkeys(limits, 0.0)
        self._recovered_at: dict[str, float] = {}

    def is_at_zero(self, model: str, now: float) -> bool:
        """Whether its fleet is scaled to zero; a request for the model then starts a replica."""
        return model in self._may_be_empty and not self.candidates(model, now)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._members)

    def members(self, model: str) -> tuple[Member, ...]:
        return tuple(self._members[model].values())

    def update(
        self, model: str, reports: Iterable[EngineReport], now: float, keep_since: float | None = None
    ) -> tuple[Member, ...]:
        """Replace the members of ``model`` by those in ``reports``; returns the new ones.

        A member without a report is dropped, unless it is static or reported after ``keep_since``. Its
        running streams go on either way (they hold the member).
        """
        known = self._members[model]
        oldest = now if keep_since is None else keep_since
        current = {
            name: member
            for name, member in known.items()
            if member.report.is_static or member.reported_at > oldest
        }
        for report in reports:
            current[report.replica_id] = self._learn(known, report, now)
        self._members[model] = current
        self._recover_idle(model, now)
        return tuple(member for name, member in current.items() if known.get(name) is not member)

    def last_byte_at(self, report: EngineReport) -> float:
        """When bytes of any answer last arrived from a member (monotonic seconds); 0: unknown."""
        member = self._members[report.model].get(report.replica_id)
        return 0.0 if member is None else member.last_byte_at

    def learn(self, report: EngineReport, now: float) -> None:
        """Take in one member's report; the others stay as they are."""
        known = self._members[report.model]
        known[report.replica_id] = self._learn(known, report, now)
        self._recover_idle(report.model, now)

    def _learn(self, known: Mapping[str, Member], report: EngineReport, now: float) -> Member:
        member = known.get(report.replica_id)
        if member is None or member.report.url != report.url:
            paces = [other.pace for other in known.values()]
            member = Member(report, limit=0, pace=Pace.typical_of(paces))
        member.report = report
        named = None if report.is_static else self._limits[report.model]
        member.limit = named or max(1, report.capacity)
        member.others = max(0, report.running + report.waiting - member.in_flight)
        self._bound(member)
        member.others_waiting = max(0, report.waiting - member.unanswered)
        member.reported_at = now
        return member

    def shared(self) -> None:
        """This gateway's share has changed."""
        for members in self._members.values():
            for member in members.values():
                if member.report.is_static:
                    self._bound(member)

    def _bound(self, member: Member) -> None:
        """Leave other gateways their part: of what is free at a replica until its next report, which counts
        theirs; of all there is at an upstream, which reports no load. A gateway may always take one, so at
        most one slot too many for each other gateway is taken."""
        if self._share.gateways == 1:
            member.granted = ALL
        elif member.report.is_static:
            member.granted = self._share.of(member.limit)
        else:
            free = member.limit - member.in_flight - member.others
            member.granted = member.in_flight + (self._share.of(free) if free > 0 else 0)

    def _recover_idle(self, model: str, now: float) -> None:
        members = self._members[model].values()
        paces = [member.pace.prefill_s_per_token for member in members if member.pace.first_bytes]
        elapsed_s = now - self._recovered_at.get(model, now)
        self._recovered_at[model] = now
        for member in members if paces else ():
            if member.in_flight == 0:
                member.pace.recover(min(paces), elapsed_s)

    def takes_tools(self, model: str) -> bool:
        """Whether some member reads tool calls; ``True`` if none is known yet."""
        members = self._members[model].values()
        return not members or any(member.report.takes_tools for member in members)

    def candidates(self, model: str, now: float) -> tuple[Member, ...]:
        """The members that can take a request of ``model`` now."""
        return tuple(member for member in self._members[model].values() if member.can_serve(now))

    def send(
        self, member: Member, tokens: float, now: float, *, slots: int = 1, tenant: str = ""
    ) -> Dispatch:
        """A request with an estimated ``tokens`` of uncached prompt goes to ``member``."""
        queued = member.load >= member.report.capacity
        dispatch = Dispatch(member, tokens, member.pending_tokens + tokens, queued, now)
        dispatch.slots, dispatch.tenant = slots, tenant
        member.in_flight += slots
        member.unanswered += slots
        member.pending_tokens += tokens
        self._advance_turn(member)
        return dispatch

    def _advance_turn(self, member: Member) -> None:
        """Start-time fair queueing (Goyal et al. 1996): a turn begins no earlier than the one before it,
        so that a new or returning member has no saved-up turns to catch up on."""
        model = member.report.model
        begin = self._turns[model] = max(self._turns[model], member.turn)
        member.turn = begin + 1.0 / member.report.weight

    def first_byte(self, dispatch: Dispatch, now: float, *, streamed: bool = True) -> None:
        """The member began to answer. Only a stream that was not ``queued`` shows how long a prompt takes:
        the first byte of any other answer also waited for some request to end, another one or itself."""
        pace = dispatch.member.pace
        dispatch.first_byte_at = dispatch.member.last_byte_at = now
        self._answered(dispatch)
        if streamed and not dispatch.queued:
            pace.saw_first_byte(now - dispatch.sent_at, dispatch.tokens_ahead, dispatch.tokens)
        if streamed:
            dispatch.began_at = max(dispatch.sent_at, now - dispatch.tokens * pace.prefill_s_per_token)
        elif not dispatch.queued:
            dispatch.began_at = dispatch.sent_at

    def end(self, dispatch: Dispatch, now: float, *, complete: bool) -> None:
        """The request is over. Only a ``complete`` answer gives a sample of the member's service time,
        counted from when it began to run: with the wait, a long queue would look like a slow member."""
        dispatch.member.in_flight -= dispatch.slots
        if dispatch.first_byte_at is None:
            self._answered(dispatch)
        elif complete and dispatch.began_at is not None:
            dispatch.member.pace.saw_end(now - dispatch.began_at)

    def _answered(self, dispatch: Dispatch) -> None:
        dispatch.member.unanswered -= dispatch.slots
        dispatch.member.pending_tokens -= dispatch.tokens

    def mark_unreachable(self, member: Member, now: float) -> None:
        """Send nothing for a while to a member that refused a connection."""
        member.unreachable_until = now + UNREACHABLE_S

    def is_ready(self, now: float) -> bool:
        """Whether every model has a member that can serve, or may be scaled to zero."""
        waits_for = self._members.keys() - self._may_be_empty
        return all(self.candidates(model, now) for model in waits_for)

    def in_flight(self) -> int:
        return sum(member.in_flight for members in self._members.values() for member in members.values())
