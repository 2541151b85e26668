"""The shortest expected wait for the first token first."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest

Rank = tuple[float, float, float, str]


def least_wait(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """By queue and prefill in seconds, as each member's own pace and load have it."""
    return sorted(candidates, key=lambda member: wait_rank(member, request.prompt_tokens))


def wait_rank(member: Member, new_tokens: float) -> Rank:
    """Among equals the KV cache and the turn decide, the name last.

    The last token of a prompt is always computed: where nothing else is known of it, the member with less
    to do still has the shorter wait.
    """
    report = member.report
    return member.expected_wait_s(new_tokens + 1.0), report.kv_cache_usage, member.turn, report.replica_id
