"""The scaling decision, and the one object that holds its state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from statistics import fmean

from serve_app.autoscaling.arrivals import Arrivals
from serve_app.autoscaling.capacity import Capacity, least
from serve_app.autoscaling.load import FleetLoad
from serve_app.autoscaling.rules import ScalingRules
from serve_app.autoscaling.start_time import StartTime

ENOUGH_REQUESTS = 100.0
"""``worth_share`` is taken of at least this many requests. Without it, one burst of six long prompts in an
otherwise idle window would start eight replicas."""

REPLAY_S = 2.0
"""Time between two replays of the window. One takes about a millisecond for a fleet of ten."""

UNSEEN = 20.0
"""Independent arrivals that are assumed to be still unseen: a fleet that has seen one burst is sized for a
larger one, a fleet that has seen a hundred for those. Tuned in ``scripts/simulate_autoscaling.py``."""

MOST_UNSEEN = 2.0
"""The traffic assumed unseen is at most this many times the traffic seen."""

ENOUGH_ANSWERS = 50.0
"""Fewer first tokens than this say nothing about the late share."""

SETTLED_S = 10.0
"""Just after the fleet has changed, the answers that begin still waited in the old queue, and reports are
some seconds old."""

FAR_BEYOND = 2.0
"""Measured lateness above this many times the allowed share means that the model is wrong about this load."""


class Reason(StrEnum):
    """Why a decision was made; the values are the label of a metric."""

    WAITING = "waiting"
    """Requests wait and no replica serves."""
    BACKLOG = "backlog"
    """The present backlog would still be there when a new replica serves."""
    ARRIVALS = "arrivals"
    """Steady traffic, or its trend over the time that a start takes."""
    FIRST_TOKENS = "first_tokens"
    """Traffic like the window's would be answered late too often."""
    TOKEN_GAPS = "token_gaps"
    """Streams are slower than the objective."""
    KV_CACHE = "kv_cache"
    """The KV cache is nearly full."""
    LATE = "late"
    """First tokens were late although the model says that the fleet is large enough."""
    BOUND = "bound"
    """``min_replicas``."""
    HELD = "held"
    """Fewer would do now, but not for the peak within the hold time, or not with headroom."""
    SURPLUS = "surplus"
    """Fewer replicas hold the objective with headroom."""
    IDLE = "idle"
    """No request came for ``zero_after_s``."""
    STEADY = "steady"
    """As many replicas as needed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. Afterwards ``serving`` replicas should serve (or start, or wake) and ``replicas``
    should exist, sleeping ones included. ``needed`` is what the load asks for before bounds and
    hysteresis."""

    serving: int
    replicas: int
    needed: int
    reason: Reason
    wake: int = 0
    start: int = 0
    sleep: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas are needed, and why."""

    replicas: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Held:
    """The fewest replicas that hold the objective, and how many of them are worth their cost."""

    enough: int
    worthwhile: int


class Autoscaler:
    """The autoscaler of one model. Its one owner calls ``decide`` about once a second."""

    def __init__(self, rules: ScalingRules) -> None:
        self._rules = rules
        self._arrivals = Arrivals(rules.window_s)
        self._start_time = StartTime(rules.start_s)
        self._capacity = Capacity.expected(rules)
        self._lateness = Lateness(rules)
        self._kept = Peak()
        self._replays: dict[float, tuple[float, Held]] = {}
        self._busy_at: float | None = None
        self._serving = 0

    def decide(self, load: FleetLoad, now: float) -> Decision:
        """What to do with the fleet at ``now`` (monotonic seconds)."""
        start_s = self._learn(load, now)
        need = self._need(load, now, start_s)
        self._kept.add(self._to_keep(load, need), now)
        if self._is_idle(now):
            return self._towards(load, 0, Need(0, Reason.IDLE))
        # A replica that is stopped within a start time of its need could not be back in time.
        return self._step(load, need, self._kept.within(max(start_s, self._rules.hold_s), now))

    def _learn(self, load: FleetLoad, now: float) -> float:
        """Take in the reported load; returns how long a start takes, in seconds."""
        if self._busy_at is None:  # a new autoscaler, maybe of an older fleet whose traffic it has not seen
            self._kept.add(load.serving, now)
        self._start_time.observe(len(load.ready), load.starting, now)
        self._arrivals.add(load.arrived, load.arrived_tokens, now)
        self._capacity = self._capacity.measured(load, self._rules)
        self._lateness.observe(load, now)
        # A replica that was ordered elsewhere (Serve starts one for a call that finds none) counts as needed.
        grew, self._serving = load.serving > self._serving, load.serving
        if load.arrived or load.ongoing or grew or self._busy_at is None:
            self._busy_at = now
        return self._start_time.expected_s(now)

    def _is_idle(self, now: float) -> bool:
        rules = self._rules
        idle_s = now - self._busy_at if self._busy_at is not None else 0.0
        return rules.min_replicas == 0 and idle_s >= rules.zero_after_s

    def _step(self, load: FleetLoad, need: Need, keep: int) -> Decision:
        serving = load.serving
        needed, kept = self._rules.bounded(need.replicas), self._rules.bounded(keep)
        if needed > serving:
            reason = need.reason if need.replicas > self._rules.min_replicas else Reason.BOUND
            return self._towards(load, needed, Need(need.replicas, reason))
        if serving:
            # Scale to zero only when the model is idle.
            kept = max(1, kept)
        if kept < serving:
            return self._towards(load, kept, Need(need.replicas, Reason.SURPLUS))
        reason = Reason.STEADY if needed == serving else Reason.HELD
        return self._towards(load, serving, Need(need.replicas, reason))

    def _towards(self, load: FleetLoad, serving: int, need: Need) -> Decision:
        """Wake sleeping replicas before starting any; put replicas to sleep before stopping any."""
        more = max(0, serving - load.serving)
        fewer = max(0, load.serving - serving)
        wake = min(more, load.sleeping)
        # Only a serving replica can be put to sleep: those that are still starting are cancelled first.
        may_sleep = min(max(0, fewer - load.starting), self._rules.max_sleeping - load.sleeping)
        sleep = max(0, may_sleep)
        return Decision(
            serving=serving,
            replicas=serving + load.sleeping - wake + sleep,
            needed=need.replicas,
            reason=need.reason,
            wake=wake,
            start=more - wake,
            sleep=sleep,
            stop=fewer - sleep,
        )

    def _need(self, load: FleetLoad, now: float, start_s: float) -> Need:
        """The largest need; among equal ones the first gives the reason."""
        held = self._held(load, 1.0)
        needs = [*self._needs(load, now, start_s), Need(held.worthwhile, Reason.FIRST_TOKENS)]
        need = max(needs, key=lambda each: each.replicas)
        floor = self._lateness.floor(load, max(need.replicas, held.enough), now)
        return Need(floor, Reason.LATE) if floor > need.replicas else need

    def _needs(self, load: FleetLoad, now: float, start_s: float) -> Iterator[Need]:
        rules, capacity = self._rules, self._capacity
        lead_s = min(start_s, rules.window_s / 2)
        rate = self._arrivals.forecast(now, lead_s)
        anybody = bool(load.ongoing or load.arrived)
        yield Need(int(anybody), Reason.WAITING if anybody else Reason.STEADY)
        yield _need(capacity.replicas_for_backlog(load, rate, lead_s, lead_s), Reason.BACKLOG)
        yield _need(capacity.replicas_for(rate) / rules.utilisation, Reason.ARRIVALS)
        full = sum(replica.kv_cache_usage for replica in load.ready)
        yield _need(full / rules.max_kv_cache_usage, Reason.KV_CACHE)
        gaps = [replica.itl_s for replica in load.ready if replica.itl_s is not None]
        if rules.itl_objective_s is not None and gaps:
            yield _need(len(load.ready) * fmean(gaps) / rules.itl_objective_s, Reason.TOKEN_GAPS)

    def _held(self, load: FleetLoad, growth: float) -> Held:
        """``_replayed``, kept for ``REPLAY_S``: it is the costly part of a decision."""
        known = self._replays.get(growth)
        if known is None or known[0] < self._arrivals.seen_until - REPLAY_S:
            known = self._arrivals.seen_until, self._replayed(load, growth)
            self._replays[growth] = known
        return known[1]

    def _replayed(self, load: FleetLoad, growth: float) -> Held:
        """How many replicas the window's requests, scaled by ``growth``, would have needed."""
        rules, arrivals = self._rules, self._arrivals
        if not arrivals.requests:
            return Held(0, 0)
        growth *= 1.0 + min(MOST_UNSEEN, UNSEEN / arrivals.independent)
        requests = growth * arrivals.requests
        allowed = rules.late_share * requests

        @cache
        def late(replicas: int) -> float:
            return self._capacity.late_requests(arrivals.bins, replicas, rules.ttft_objective_s, growth)

        enough = least(lambda replicas: late(replicas) <= allowed, rules.max_replicas, load.serving)
        return Held(enough, _worthwhile(late, enough, rules.worth_share * max(ENOUGH_REQUESTS, requests)))

    def _to_keep(self, load: FleetLoad, need: Need) -> int:
        """The least number to keep: what is needed, and what holds the window's traffic with headroom."""
        if need.replicas >= load.serving:
            return need.replicas
        return max(need.replicas, self._held(load, 1.0 + self._rules.headroom).worthwhile)


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
        return self._first_tokens >= ENOUGH_ANSWERS and self._late > late_beyond


def _need(replicas: float, reason: Reason) -> Need:
    return Need(math.ceil(replicas - 1e-9), reason)
