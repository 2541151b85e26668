"""How fast a line of waiting requests gets shorter."""

from __future__ import annotations

from collections import deque

WINDOW = 64
"""Departures that are remembered at any rate."""

HORIZON_S = 10.0
"""And those of so many seconds: a batch that ends as one must not fill the whole memory, or a hundred ends
within a millisecond would pass for the rate."""

ENOUGH = 8
"""Fewer departures than this say nothing: the capacity's estimate is used instead."""


class DrainRate:
    """Places that come free per second while the fleet is full: from when somebody began to wait until a
    departure finds nobody waiting. At any other time departures follow arrivals and say nothing of what the
    fleet could do."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._departures: deque[tuple[float, int]] = deque()
        self._places = 0

    def waits(self, now: float) -> None:
        """Somebody begins to wait at ``now`` (monotonic seconds)."""
        if self._since is None:
            self._since = now

    def departed(self, now: float, *, line_is_empty: bool, places: int = 1) -> None:
        """A request left its engine, and its places free."""
        if line_is_empty:
            self._since = None
            self._departures.clear()
            self._places = 0
            return
        self._departures.append((now, places))
        self._places += places
        while len(self._departures) > WINDOW and self._departures[0][0] < now - HORIZON_S:
            self._since, gone = self._departures.popleft()
            self._places -= gone

    def per_second(self, now: float) -> float | None:
        """``None`` while too little was seen. Silence since the last departure slows the rate."""
        if self._since is None or len(self._departures) < ENOUGH or now <= self._since:
            return None
        return self._places / (now - self._since)
