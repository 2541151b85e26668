"""What one replica can serve, and how many requests a fleet of a given size would answer late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from serve_app.autoscaling.arrivals import Bin, Rate
from serve_app.autoscaling.load import FleetLoad
from serve_app.autoscaling.rules import ScalingRules

BURSTINESS = 0.5
"""Share of a bin that is processed before its last request arrives: 0 if all of them arrive at once, 1 if one
after the other. With a half, the late shares of fleets of 2 to 16 replicas on the bursty Azure code trace
are nearly those of the simulation of single requests (``scripts/autoscaling_simulation/``): 28 % for
26 % at 4 replicas, 4.9 % for 4.5 % at 8."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """One replica runs ``slots`` requests at once, each for ``service_s`` seconds."""

    prefill_tokens_per_s: float
    service_s: float
    slots: float

    @classmethod
    def expected(cls, rules: ScalingRules) -> Capacity:
        """The values of the rules, used until they are measured."""
        return cls(rules.prefill_tokens_per_s, rules.service_s, rules.requests_per_replica or 16.0)

    def measured(self, load: FleetLoad, rules: ScalingRules) -> Capacity:
        """The mean over the replicas that report a value; a value that none reports stays as it is."""
        ready = load.ready
        prefill = [each.prefill_tokens_per_s for each in ready if each.prefill_tokens_per_s]
        service = [each.service_s for each in ready if each.service_s]
        slots = [min(each.capacity, rules.requests_per_replica or each.capacity) for each in ready]
        return Capacity(
            fmean(prefill) if prefill else self.prefill_tokens_per_s,
            fmean(service) if service else self.service_s,
            max(1.0, fmean(slots)) if slots else self.slots,
        )

    def replicas_for(self, rate: Rate) -> float:
        """How many replicas a steady rate keeps busy, with prefill or with occupied slots (Little's law)."""
        by_prompts = rate.tokens / self.prefill_tokens_per_s
        by_slots = rate.requests * self.service_s / self.slots
        return max(by_prompts, by_slots)

    def replicas_for_backlog(self, load: FleetLoad, rate: Rate, lead_s: float, clear_s: float) -> float:
        """How many replicas are needed in ``lead_s`` seconds, when a replica that is ordered now begins to
        serve: enough for the ``rate``, and enough to clear within ``clear_s`` the backlog that the ready
        replicas leave until then."""
        ready = len(load.ready)
        queue = max(0.0, load.ongoing - ready * self.slots)
        tokens = load.unprefilled_tokens + lead_s * (rate.tokens - ready * self.prefill_tokens_per_s)
        requests = queue + lead_s * (rate.requests - ready * self.slots / self.service_s)
        if tokens <= 0 and requests <= 0:
            return 0.0
        by_prompts = tokens / (clear_s * self.prefill_tokens_per_s)
        by_slots = requests * self.service_s / (clear_s * self.slots)
        return self.replicas_for(rate) + max(0.0, by_prompts, by_slots)

    def late_requests(
        self,
        bins: Iterable[Bin],
        replicas: int,
        objective_s: float,
        growth: float = 1.0,
    ) -> float:
        """How many requests of ``bins``, scaled by ``growth``, would be answered late by this many replicas.

        A fluid model: all replicas together prefill one prompt after the other, and each request first waits
        for a slot.
        """
        rate = replicas * self.prefill_tokens_per_s
        slots = replicas * self.slots
        slot_s = self.service_s / slots
        backlog = occupied = late = 0.0
        for bin_ in bins:
            if bin_.requests:
                requests, tokens = growth * bin_.requests, growth * bin_.tokens
                own = bin_.tokens / bin_.requests
                # More replicas do not help a prompt whose own prefill takes longer than the objective.
                may_wait_s = max(0.0, objective_s - own / self.prefill_tokens_per_s)
                ahead = max(0.0, tokens - own - BURSTINESS * rate * bin_.seconds)
                in_time = _part_in_time(
                    may_wait_s,
                    prompts=(backlog / rate, ahead / rate),
                    slots=((occupied - slots) * slot_s, requests * slot_s),
                )
                late += requests * (1.0 - in_time)
                occupied += requests
                backlog += tokens
            backlog = max(0.0, backlog - rate * bin_.seconds)
            occupied -= min(occupied, slots) * -math.expm1(-bin_.seconds / self.service_s)
        return late


def _part_in_time(may_wait_s: float, prompts: tuple[float, float], slots: tuple[float, float]) -> float:
    """The share of a bin's requests that wait at most ``may_wait_s``: for the prompts ahead of them and, if
    every slot is occupied, for a slot. Each wait is a pair: the wait of the bin's first request (negative
    while slots are free), and how much longer its last one waits."""
    first, more = prompts
    first_slot, more_slot = slots
    if first + max(0.0, first_slot) > may_wait_s:
        return 0.0
    if first + more + max(0.0, first_slot + more_slot) <= may_wait_s:
        return 1.0
    part = (may_wait_s - first) / more if more else 1.0
    if first_slot + part * more_slot > 0.0:
        part = (may_wait_s - first - first_slot) / (more + more_slot)
    return min(1.0, part)


def least(holds: Callable[[int], bool], most: int, guess: int) -> int:
    """The smallest number from 1 to ``most`` for which ``holds`` is true, or ``most`` if there is none.
    ``holds`` must be monotonic: true for every number above one for which it is true. ``guess`` is tried
    first: a guess that is right takes two calls."""
    low, high = 1, most
    guess = max(1, min(most, guess))
    if holds(guess):
        if guess == 1 or not holds(guess - 1):
            return guess
        high = guess - 1
    else:
        low = min(guess + 1, most)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
