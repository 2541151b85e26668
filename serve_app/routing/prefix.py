"""The member that holds most of the prompt, unless a queue there costs more than the prompt does."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest
from serve_app.routing.least_wait import wait_rank

LOAD_BOUND = 2.0
"""Times the mean load that a member may have before locality stops to count. Measured with
scripts/benchmarks/routing.py: 1.25 lost two thirds of what prefixes gain, 3 gained nothing."""

FREE_LOAD = 8.0
"""Requests that run beside each other at hardly any cost: a member with no more is never beyond the bound."""


def prefix(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """By the expected time to the first token: the queue, and the tokens that the member has yet to prefill.

    As far as this estimate goes, locality never outweighs a queue. Where it errs, members beyond a bounded
    load come last ("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and Zadimoghaddam 2016).
    """
    bound = _load_bound(candidates)
    ranked = sorted(candidates, key=lambda member: wait_rank(member, request.uncached_tokens(member)))
    ranked.sort(key=lambda member: member.load > bound * member.report.weight)  # stable
    return ranked


def _load_bound(members: Sequence[Member]) -> float:
    """For a member of weight 1."""
    weights = sum(member.report.weight for member in members)
    loads = sum(member.load for member in members)
    return max(FREE_LOAD, LOAD_BOUND * loads / weights) if members else 0.0
