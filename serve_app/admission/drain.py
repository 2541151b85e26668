"""How fast a queue of requests drains."""

from __future__ import annotations

from collections import deque

WINDOW = 64
"""At least this many departures are remembered."""

HORIZON_S = 10.0
"""Departures of this last period are remembered as well. Otherwise a batch whose requests end together, such
as a hundred departures within a millisecond, would fill the memory and count as the rate."""

ENOUGH = 8
"""With fewer departures there is no rate; the estimate from the capacity is used instead."""


class DrainRate:
    """Slots that become free per second while the fleet is full: from the first waiting request until a
    departure finds the queue empty. At other times departures follow arrivals, and do not show the fleet's
    capacity."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._departures: deque[tuple[float, int]] = deque()
        self._slots = 0

    def waits(self, now: float) -> None:
        """A request begins to wait at ``now`` (monotonic seconds)."""
        if self._since is None:
            self._since = now

    def departed(self, now: float, *, queue_is_empty: bool, slots: int = 1) -> None:
        """A request left its engine and freed its slots."""
        if queue_is_empty:
            self._since = None
            self._departures.clear()
            self._slots = 0
            return
        self._departures.append((now, slots))
        self._slots += slots
        while len(self._departures) > WINDOW and self._departures[0][0] < now - HORIZON_S:
            self._since, gone = self._departures.popleft()
            self._slots -= gone

    def per_second(self, now: float) -> float | None:
        """The rate; ``None`` while too little was seen. Time without a departure lowers it."""
        if self._since is None or len(self._departures) < ENOUGH or now <= self._since:
            return None
        return self._slots / (now - self._since)
