"""Keeps a session where its earlier turns are cached, unless the queue there costs more than it saves."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest
from serve_app.routing.least_wait import wait_rank
from serve_app.routing.prefix import last_beyond_bound
from serve_app.routing.session import home_first


def affinity(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """Orders members by the expected time to first token, as the policy ``prefix``. A session has a home, by
    a hash that all gateways compute alike; the home is taken to hold the whole prompt, whatever this gateway
    knows of it: earlier turns may have come through another one. So the first turn goes home too, and a
    member that joins or leaves moves only the sessions that it gets or had.

    A turn that went elsewhere because of a queue is found again by its prefix. Members above the bounded load
    come last.
    """
    home, *_ = homes = home_first(request.session or "", candidates)
    at_home = home.report.replica_id
    order = {member.report.replica_id: position for position, member in enumerate(homes)}

    def rank(member: Member) -> tuple[float, int]:
        name = member.report.replica_id
        new_tokens = 0.0 if name == at_home else request.uncached_tokens(member)
        return wait_rank(member, new_tokens)[0], order[name]

    return last_beyond_bound(sorted(candidates, key=rank), candidates)
