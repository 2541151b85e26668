"""What the fleet's measured first tokens say about the model of the fleet.

This exists for engines that are slower than they report; simulated ones never are unless told to.
"""

from __future__ import annotations

import math
from collections import deque

from serve_app.autoscaling.load import FleetLoad
from serve_app.autoscaling.rules import ENOUGH_REQUESTS, ScalingRules

SETTLED_S = 10.0
"""Just after a change of the fleet, the answers that begin have waited in the old queue, and reports are some
seconds old. If these answers counted, the conversation trace would take a quarter more replica-hours."""

FAR_BEYOND = 2.0
"""Measured lateness above this many times the allowed share means that the model is wrong about this load; a
little above it is chance. With engines half as fast as they report, less is worse at equal replica-hours."""


class Peak:
    """The highest number within a sliding window of time."""

    def __init__(self) -> None:
        self._falling: deque[tuple[float, int]] = deque()

    def add(self, number: int, now: float) -> None:
        while self._falling and self._falling[-1][1] <= number:
            self._falling.pop()
        self._falling.append((now, number))

    def within(self, seconds: float, now: float) -> int:
        """The maximum, or 0 if there was none. Older numbers are forgotten."""
        while self._falling and self._falling[0][0] < now - seconds:
            self._falling.popleft()
        return self._falling[0][1] if self._falling else 0


class Lateness:
    """First tokens since the fleet last changed, compared with the model's prediction. Each time that the
    model was wrong, the fleet keeps one more replica for the length of the window."""

    def __init__(self, rules: ScalingRules) -> None:
        self._rules = rules
        self._ready = 0
        self._changed_at = -math.inf
        self._first_tokens = 0.0
        self._late = 0.0
        self._floors = Peak()

    def observe(self, load: FleetLoad, now: float) -> None:
        """Answers that began since the last call. While the fleet changes, and just after, none are
        counted."""
        if len(load.ready) != self._ready or load.starting or load.waking:
            self._ready, self._first_tokens, self._late = len(load.ready), 0.0, 0.0
            self._changed_at = now
        elif now - self._changed_at >= SETTLED_S:
            self._first_tokens += load.first_tokens
            self._late += load.late_first_tokens

    def floor(self, load: FleetLoad, modelled: int, now: float) -> int:
        """The least fleet whatever the model says; ``modelled`` is the model's answer."""
        floor = self._floors.within(self._rules.window_s, now)
        ready = len(load.ready)
        if max(modelled, floor) <= ready and self._is_too_late():
            # The measurement shows that one more is needed; it cannot show more than that.
            floor = ready + 1
            self._floors.add(floor, now)
            self._first_tokens = self._late = 0.0
        return floor

    def _is_too_late(self) -> bool:
        late_beyond = FAR_BEYOND * self._rules.late_share * self._first_tokens
        return self._first_tokens >= ENOUGH_REQUESTS and self._late > late_beyond
