"""How many replicas the traffic of the last minutes would have needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from serve_app.autoscaling.arrivals import Arrivals
from serve_app.autoscaling.capacity import Capacity, least
from serve_app.autoscaling.rules import ENOUGH_REQUESTS, ScalingRules

REPLAY_S = 2.0
"""Time between two replays of the window. One takes about a millisecond for a fleet of ten. More often is no
better: on the code trace a fleet that follows every second is a little larger, and no more answers are in
time."""

UNSEEN = 20.0
"""Independent arrivals that are assumed beyond those seen: after one burst a fleet is sized for a larger one,
after a hundred bursts for these. Without it twice as many first tokens of the code trace are late."""

MOST_UNSEEN = 2.0
"""The traffic assumed unseen is at most this many times the traffic seen. Without the limit the first bursts
of the code trace start a fleet that costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Held:
    """The fewest replicas that hold the objective, and how many of them are worth their cost."""

    enough: int
    worthwhile: int


class WindowReplay:
    """Replays the arrivals of the window on the model of the fleet (``Capacity``)."""

    def __init__(self, rules: ScalingRules, arrivals: Arrivals) -> None:
        self._rules = rules
        self._arrivals = arrivals
        self._known: dict[float, tuple[float, Held]] = {}

    def held(self, capacity: Capacity, serving: int, growth: float = 1.0) -> Held:
        """How many replicas the window's requests, scaled by ``growth``, would have needed. A result is
        reused for ``REPLAY_S``: this is the costly part of a decision. ``serving`` is where the search
        begins."""
        known = self._known.get(growth)
        if known is None or known[0] < self._arrivals.seen_until - REPLAY_S:
            known = self._arrivals.seen_until, self._replayed(capacity, serving, growth)
            self._known[growth] = known
        return known[1]

    def _replayed(self, capacity: Capacity, serving: int, growth: float) -> Held:
        rules, arrivals = self._rules, self._arrivals
        if not arrivals.requests:
            return Held(0, 0)
        growth *= 1.0 + min(MOST_UNSEEN, UNSEEN / arrivals.independent)
        requests = growth * arrivals.requests
        allowed = rules.late_share * requests

        @cache
        def late(replicas: int) -> float:
            return capacity.late_requests(arrivals.bins, replicas, rules.ttft_objective_s, growth)

        enough = least(lambda replicas: late(replicas) <= allowed, rules.max_replicas, serving)
        return Held(enough, _worthwhile(late, enough, rules.worth_share * max(ENOUGH_REQUESTS, requests)))


def _worthwhile(late: Callable[[int], float], most: int, worth: float) -> int:
    """The number up to ``most`` with the least total cost: its late requests plus ``worth`` for each replica.
    Relies on fewer replicas never having fewer late requests."""
    best, least_cost = most, math.inf
    for replicas in range(most, 0, -1):
        cost = late(replicas) + worth * replicas
        if cost < least_cost:
            best, least_cost = replicas, cost
        if late(replicas) + worth > least_cost:
            break
    return best
