"""The fleet table of one gateway: the only owner of member state. No clock: callers pass ``now``."""

from __future__ import annotations

from collections.abc import Iterable

from serve_app.fleet.members import EngineReport, Member

UNREACHABLE_S = 1.0
"""A member that refused a connection is left alone this long, unless it reports again as a new one."""


class FleetTable:
    """Members by model; each member's in-flight count is raised by ``acquire`` and lowered by ``release``."""

    def __init__(self, models: Iterable[str]) -> None:
        self._members: dict[str, dict[str, Member]] = {model: {} for model in models}

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._members)

    def members(self, model: str) -> tuple[Member, ...]:
        return tuple(self._members[model].values())

    def update(
        self, model: str, reports: Iterable[EngineReport], now: float, keep_since: float | None = None
    ) -> tuple[Member, ...]:
        """Replace what is known of ``model``'s members; returns the new ones.

        A member that does not report is dropped, unless it last did so after ``keep_since``; its running
        streams go on either way (they hold the member).
        """
        known = self._members[model]
        oldest = now if keep_since is None else keep_since
        current = {name: member for name, member in known.items() if member.reported_at > oldest}
        for report in reports:
            member = known.get(report.replica_id)
            if member is None or member.report.url != report.url:
                member = Member(report)
            member.report = report
            member.reported_at = now
            current[report.replica_id] = member
        self._members[model] = current
        return tuple(member for name, member in current.items() if known.get(name) is not member)

    def candidates(self, model: str, now: float) -> tuple[Member, ...]:
        """The members that can take a request of ``model`` now."""
        return tuple(member for member in self._members[model].values() if member.can_serve(now))

    def acquire(self, member: Member) -> None:
        member.in_flight += 1

    def release(self, member: Member) -> None:
        member.in_flight -= 1

    def mark_unreachable(self, member: Member, now: float) -> None:
        """Leave a member alone that refused a connection."""
        member.unreachable_until = now + UNREACHABLE_S

    def is_ready(self, now: float) -> bool:
        """Every model has a member that can serve."""
        return all(self.candidates(model, now) for model in self._members)

    def in_flight(self) -> int:
        return sum(member.in_flight for members in self._members.values() for member in members.values())
