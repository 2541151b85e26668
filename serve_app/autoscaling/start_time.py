"""How long a replica takes to start, learned from earlier starts."""

from __future__ import annotations

from collections import deque

from serve_app.smoothing import mean


class StartTime:
    """Seconds from the order of a replica until it serves. Starts that fail or are cancelled are not counted.

    Replicas of one model are alike, so a replica that becomes ready is taken to be the oldest order, and a
    cancelled one the newest (Serve first stops what has not begun).
    """

    def __init__(self, default_s: float) -> None:
        self._mean_s = default_s
        self._starts = 0
        self._ready = 0
        self._ordered: deque[float] = deque()

    def observe(self, ready: int, starting: int, now: float) -> None:
        """The fleet at ``now`` (seconds). Called on every decision: the interval is the measurement's
        error."""
        came = ready - self._ready
        while came > 0 and len(self._ordered) > starting:
            self._saw(now - self._ordered.popleft())
            came -= 1
        while len(self._ordered) > starting:
            self._ordered.pop()
        while len(self._ordered) < starting:
            self._ordered.append(now)
        self._ready = ready

    def expected_s(self, now: float) -> float:
        """The mean of the starts so far, or the age of the oldest one under way if that is longer."""
        lasting_s = now - self._ordered[0] if self._ordered else 0.0
        return max(self._mean_s, lasting_s)

    def _saw(self, elapsed_s: float) -> None:
        self._mean_s = mean(self._mean_s, elapsed_s, self._starts)
        self._starts += 1
