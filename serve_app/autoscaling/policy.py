"""The scaling decision, and the object that holds its state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from serve_app.autoscaling.arrivals import Arrivals
from serve_app.autoscaling.capacity import Capacity
from serve_app.autoscaling.lateness import Lateness, Peak
from serve_app.autoscaling.load import FleetLoad
from serve_app.autoscaling.replay import WindowReplay
from serve_app.autoscaling.rules import ScalingRules
from serve_app.autoscaling.start_time import StartTime


class Reason(StrEnum):
    """Why a decision was made, as the log and the console's Fleet page have it with each change. There is one
    reason for each thing that an operator may answer with: a setting of ``replicas``, or another engine."""

    BACKLOG = "backlog"
    """The queue would still be there when a new replica serves, or no replica serves at all: without it the
    fleet waits for late answers (``max``, ``sleeping``)."""
    BUSY = "busy"
    """Steady traffic, with its trend over the time of a start, takes more than ``utilisation`` of the prefill
    or the slots, or the KV cache is fuller than that (``max``; a larger engine)."""
    FIRST_TOKENS = "first_tokens"
    """Traffic like the window's would be answered late too often, or is: this is the need that the figures of
    ``make bench`` come from (``ttft_objective_s``, ``late_share``, ``worth_share``)."""
    TOKEN_GAPS = "token_gaps"
    """Streams are slower than ``itl_objective_s``. No recorded trace has such an objective; it exists because
    no other need sees a fleet whose first tokens are early and whose streams crawl."""
    BOUND = "bound"
    """``min`` asks for more than the load."""
    SURPLUS = "surplus"
    """Fewer replicas hold the objective with headroom, and have for ``hold_s``."""
    IDLE = "idle"
    """No request came for ``zero_after_s``."""
    STEADY = "steady"
    """Nothing changes: as many as needed, or fewer would do only since a moment ago."""


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


class Autoscaler:
    """The autoscaler of one model. Its owner calls ``decide`` about once a second."""

    def __init__(self, rules: ScalingRules) -> None:
        self._rules = rules
        self._arrivals = Arrivals(rules.window_s)
        self._start_time = StartTime(rules.start_s)
        self._capacity = Capacity.expected(rules)
        self._lateness = Lateness(rules)
        self._kept = Peak()
        self._replay = WindowReplay(rules, self._arrivals)
        self._busy_at: float | None = None
        self._serving = 0

    def decide(self, load: FleetLoad, now: float) -> Decision:
        """What to do with the fleet at ``now`` (monotonic seconds)."""
        start_s = self._learn(load, now)
        need = self._need(load, now, start_s)
        self._kept.add(self._to_keep(load, need), now)
        if self._is_idle(now):
            return self._towards(load, 0, Need(0, Reason.IDLE))
        # A stopped replica needs a start time to return, so it is kept at least that long.
        return self._step(load, need, self._kept.within(max(start_s, self._rules.hold_s), now))

    def _learn(self, load: FleetLoad, now: float) -> float:
        """Take in the reported load; returns how long a start takes, in seconds."""
        if self._busy_at is None:  # a new autoscaler, perhaps of a fleet whose past traffic it does not know
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
        return self._towards(load, serving, Need(need.replicas, Reason.STEADY))

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
        held = self._replay.held(self._capacity, load.serving)
        needs = [*self._needs(load, now, start_s), Need(held.worthwhile, Reason.FIRST_TOKENS)]
        need = max(needs, key=lambda each: each.replicas)
        floor = self._lateness.floor(load, max(need.replicas, held.enough), now)
        return Need(floor, Reason.FIRST_TOKENS) if floor > need.replicas else need

    def _needs(self, load: FleetLoad, now: float, start_s: float) -> Iterator[Need]:
        rules, capacity = self._rules, self._capacity
        lead_s = min(start_s, rules.window_s / 2)
        rate = self._arrivals.forecast(now, lead_s)
        is_used = bool(load.ongoing or load.arrived)
        yield _need(max(is_used, capacity.replicas_for_backlog(load, rate, lead_s, lead_s)), Reason.BACKLOG)
        full = sum(replica.kv_cache_usage for replica in load.ready)
        yield _need(max(capacity.replicas_for(rate), full) / rules.utilisation, Reason.BUSY)
        gaps = [replica.itl_s for replica in load.ready if replica.itl_s is not None]
        if rules.itl_objective_s is not None and gaps:
            yield _need(len(load.ready) * fmean(gaps) / rules.itl_objective_s, Reason.TOKEN_GAPS)

    def _to_keep(self, load: FleetLoad, need: Need) -> int:
        """The least number to keep: what is needed, and what holds the window's traffic with headroom."""
        if need.replicas >= load.serving:
            return need.replicas
        return max(
            need.replicas,
            self._replay.held(self._capacity, load.serving, 1.0 + self._rules.headroom).worthwhile,
        )


def _need(replicas: float, reason: Reason) -> Need:
    return Need(math.ceil(replicas - 1e-9), reason)
