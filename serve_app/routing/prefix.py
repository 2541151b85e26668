"""The member that holds most of the prompt, unless a queue there costs more than the prompt does."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest

LOCALITY = 1.0
BOUND = 2.0


def prefix(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    cached, prompt = request.cached_tokens, request.prompt_tokens
    loads = [member.load for member in candidates]
    most = BOUND * (sum(loads) + 1) / max(1.0, sum(member.report.weight for member in candidates))

    def key(member: Member) -> tuple[bool, float, float, float, float, str]:
        report = member.report
        uncached = max(0.0, prompt - cached.get(report.replica_id, 0.0))
        wait_s = member.backlog_s / report.weight + LOCALITY * uncached * member.pace.prefill_s_per_token
        load = member.load / report.weight
        return load + 1 > most + 1, wait_s, load, report.kv_cache_usage, member.turn, report.replica_id

    return sorted(candidates, key=key)
