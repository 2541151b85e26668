"""Uses the members in turn, in proportion to their weights."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest


def round_robin(_request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """Orders members by virtual time, which the fleet table advances by 1 / weight with every request
    sent."""
    return sorted(candidates, key=lambda member: (member.turn, member.name))
