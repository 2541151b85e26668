"""Fewest requests first; among equals the emptier KV cache, then a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.fleet import Member


def least_loaded(candidates: Sequence[Member]) -> list[Member]:
    return sorted(
        candidates,
        key=lambda member: (member.load, member.in_flight, member.report.kv_cache_usage, member.name),
    )
