"""Prefers the member with the shortest expected wait for the first token."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest

Rank = tuple[float, float, float, str]


def least_wait(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """Orders members by seconds of queueing and prefill, from each member's own pace and load."""
    return sorted(candidates, key=lambda member: wait_rank(member, request.prompt_tokens))


def wait_rank(member: Member, new_tokens: float) -> Rank:
    """The expected wait; among equals KV cache usage, then the turn, then the name decide.

    The last token of a prompt is always computed, so at least one token counts: with a fully cached prompt,
    the less loaded member still has the shorter wait.
    """
    report = member.report
    return member.expected_wait_s(new_tokens + 1.0), report.kv_cache_usage, member.turn, report.replica_id
