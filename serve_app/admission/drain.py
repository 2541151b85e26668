"""How fast a line of waiting requests gets shorter."""

from __future__ import annotations

from collections import deque

WINDOW = 64
"""Departures that are remembered: at any rate, the newest history."""

ENOUGH = 8
"""Fewer departures than this say nothing: the capacity's estimate is used instead."""


class DrainRate:
    """Departures per second, measured only while somebody waits: without a line, departures follow arrivals
    and say nothing of what the fleet could do."""

    def __init__(self) -> None:
        self._departures: deque[float] = deque(maxlen=WINDOW)

    def departed(self, now: float, *, line_is_empty: bool) -> None:
        """A request left its engine at ``now`` (monotonic seconds)."""
        if line_is_empty:
            self._departures.clear()
        self._departures.append(now)

    def per_second(self, now: float) -> float | None:
        """``None`` while too little was seen. Silence since the last departure slows the rate."""
        if len(self._departures) < ENOUGH:
            return None
        elapsed = max(now, self._departures[-1]) - self._departures[0]
        return (len(self._departures) - 1) / elapsed if elapsed > 0 else None
