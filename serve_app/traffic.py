"""Outcomes of requests: counters of one gateway since its start, for ``/admin/traffic``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """``joined``: answered by an identical request in flight. ``failovers``: another member was tried before
    the first byte; ``continued``: after it. ``cut``: a stream ended with an error event. ``raced``: look-ups
    at the same time as the engine; ``race_hits``: those that were faster. ``refreshed``: new answers
    requested to replace stale entries. ``quarantined``: requests refused because members broke on them.
    ``items``: texts or pairs to embed, score or classify; ``items_cached``: those that the cache answered.
    ``realtime_sessions``: WebSockets that began; ``realtime_utterances``: texts completed on them."""

    requests: int = 0
    queued: int = 0
    refused: int = 0
    joined: int = 0
    failovers: int = 0
    continued: int = 0
    cut: int = 0
    hedged: int = 0
    hedge_wins: int = 0
    raced: int = 0
    race_hits: int = 0
    refreshed: int = 0
    quarantined: int = 0
    items: int = 0
    items_cached: int = 0
    realtime_sessions: int = 0
    realtime_utterances: int = 0
