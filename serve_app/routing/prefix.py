"""Prefers the member that has most of the prompt cached, unless the queue there costs more than it saves."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest
from serve_app.routing.least_wait import wait_rank
from serve_app.routing.session import home_first

LOAD_BOUND = 2.0
"""A member above this many times the mean load loses its preference. Measured with
scripts/benchmarks/routing.py: 1.25 lost two thirds of what prefixes gain, 3 gained nothing."""

NEARLY_THE_LEAST, NEARLY_THE_LEAST_S = 1.15, 0.2
"""Members whose expected wait is this many times the least one or less, and so many seconds longer at most,
count as equally fast where nobody holds a prompt: each gateway has learned the members' paces for itself, so
no two figures are equal."""

FREE_LOAD = 8.0
"""Requests that run concurrently at hardly any cost: a member with this load or less is never above the
bound."""


def prefix(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """Orders members by the expected time to first token: the queue, and the tokens that the member still has
    to prefill.

    By this estimate, locality does not outweigh a queue; only a prompt that no member holds may wait a little
    for its home (``NEARLY_THE_LEAST``). In case the estimate is wrong, members above a bounded
    load come last ("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and Zadimoghaddam 2016).
    """
    if request.beginning is not None and not request.cached_tokens:
        return last_beyond_bound(_same_everywhere(request, request.beginning, candidates), candidates)
    ranked = sorted(candidates, key=lambda member: wait_rank(member, request.uncached_tokens(member)))
    return last_beyond_bound(ranked, candidates)


def _same_everywhere(request: RoutingRequest, beginning: str, candidates: Sequence[Member]) -> list[Member]:
    """No member is known here to hold the prefix. Of members that are about equally fast the same one is
    first at every gateway, so that it is computed once, whichever ones get the requests that begin so."""
    homes = {member.name: place for place, member in enumerate(home_first(beginning, candidates))}
    waits = {member.name: wait_rank(member, request.prompt_tokens)[0] for member in candidates}
    least = min(waits.values())
    equal = min(NEARLY_THE_LEAST * least, least + NEARLY_THE_LEAST_S)

    def rank(member: Member) -> tuple[float, int]:
        return max(waits[member.name], equal), homes[member.name]

    return sorted(candidates, key=rank)


def last_beyond_bound(ranked: list[Member], candidates: Sequence[Member]) -> list[Member]:
    """``ranked``, with the members above the bounded load at its end."""
    bound = _load_bound(candidates)
    ranked.sort(key=lambda member: member.load > bound * member.report.weight)  # stable
    return ranked


def _load_bound(members: Sequence[Member]) -> float:
    """The bound for a member of weight 1."""
    weights = sum(member.report.weight for member in members)
    loads = sum(member.load for member in members)
    return max(FREE_LOAD, LOAD_BOUND * loads / weights) if members else 0.0
