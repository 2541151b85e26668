"""Counts of look-ups and writes by outcome."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CacheCounters:
    """Since this gateway started. ``near_misses``: of the misses those with a near entry that was refused."""

    exact: int = 0
    semantic: int = 0
    misses: int = 0
    near_misses: int = 0
    explored: int = 0
    asked: int = 0
    failures: int = 0
    stored: int = 0
    dropped: int = 0
    reported_right: int = 0
    reported_wrong: int = 0
