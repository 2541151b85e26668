"""The shortest expected wait for the first token first."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest


def least_wait(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """By queue and prefill in seconds, as each member's own pace has it; among equals by load, KV cache,
    turn and name. A member of twice the weight is given twice the queue."""
    tokens = request.prompt_tokens

    def key(member: Member) -> tuple[float, float, float, float, str]:
        report = member.report
        wait_s = member.backlog_s / report.weight + tokens * member.pace.prefill_s_per_token
        load = member.load / report.weight
        return wait_s, load, report.kv_cache_usage, member.turn, report.replica_id

    return sorted(candidates, key=key)
