"""Fleets grow at once by what is needed, shrink with care, end when idle and wake for the first request."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from serve_app.autoscaling import Autoscaler, Decision, FleetLoad, Reason, ReplicaLoad, ScalingRules
from serve_app.autoscaling.lateness import SETTLED_S

RULES = ScalingRules(
    min_replicas=1,
    max_replicas=12,
    start_s=30.0,
    window_s=300.0,
    hold_s=20.0,
    prefill_tokens_per_s=1000.0,
    service_s=2.0,
)
IDLE = ReplicaLoad(capacity=32)
BURST = {"arrived": 20, "arrived_tokens": 2000, "queued": 20, "queued_tokens": 2000}
"""Gone after two seconds; one replica answers half of it in time."""


def fleet(ready: int, **changed: float) -> FleetLoad:
    return replace(FleetLoad(ready=(IDLE,) * ready), **changed)  # type: ignore[arg-type]


class Town:
    """A fleet that does what it is told; replicas start within ``start_s`` and answer at once."""

    def __init__(self, rules: ScalingRules = RULES, ready: int = 1, start_s: float = 30.0) -> None:
        self.autoscaler = Autoscaler(rules)
        self.ready, self.sleeping, self.now = ready, 0, 0.0
        self.start_s = start_s
        self.starting: list[float] = []
        self.waking: list[float] = []
        self.decisions: list[Decision] = []

    def second(self, **changed: float) -> Decision:
        self.now += 1.0
        self._become_ready()
        load = fleet(
            self.ready,
            starting=len(self.starting),
            waking=len(self.waking),
            sleeping=self.sleeping,
            **changed,
        )
        decision = self.autoscaler.decide(load, self.now)
        self._obey(decision)
        self.decisions.append(decision)
        return decision

    def _become_ready(self) -> None:
        for pending in (self.starting, self.waking):
            while pending and pending[0] <= self.now:
                pending.pop(0)
                self.ready += 1

    def _obey(self, decision: Decision) -> None:
        self.starting += [self.now + self.start_s] * decision.start
        self.waking += [self.now + 1.0] * decision.wake
        for _ in range(decision.stop):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1
        self.ready -= decision.sleep
        self.sleeping += decision.sleep - decision.wake
        assert decision.serving == self.ready + len(self.starting) + len(self.waking)
        assert decision.replicas == decision.serving + self.sleeping
        assert min(self.ready, self.sleeping) >= 0

    def seconds(self, number: int, **changed: float) -> Decision:
        for _ in range(number):
            decision = self.second(**changed)
        return decision

    @property
    def serving(self) -> list[int]:
        return [decision.serving for decision in self.decisions]


def test_an_idle_fleet_at_its_minimum_stays() -> None:
    town = Town()
    assert town.seconds(500).reason is Reason.STEADY
    assert set(town.serving) == {1}


def test_the_minimum_is_kept_without_traffic() -> None:
    decision = Town(replace(RULES, min_replicas=3)).second()
    assert (decision.serving, decision.start, decision.reason) == (3, 2, Reason.BOUND)


def test_a_backlog_starts_as_many_as_it_needs_at_once() -> None:
    decision = Town().second(arrived=400, arrived_tokens=200_000, queued=400, queued_tokens=200_000)
    assert decision.start >= 5
    assert decision.reason in {Reason.BACKLOG, Reason.FIRST_TOKENS}


def test_replicas_that_start_already_are_counted() -> None:
    town = Town()
    town.second(**BURST)
    ordered = len(town.starting)
    assert ordered > 0
    town.seconds(20)
    assert len(town.starting) == ordered


def test_never_more_than_the_maximum() -> None:
    town = Town()
    for _ in range(200):
        town.second(arrived=1000, arrived_tokens=1e6, queued=1000, queued_tokens=1e6)
    assert max(town.serving) == RULES.max_replicas


def test_steady_traffic_gets_what_it_keeps_busy_and_does_not_flap() -> None:
    town = Town()
    town.seconds(1500, arrived=4, arrived_tokens=2400)
    settled = town.serving[700:]
    assert len(set(settled)) == 1
    assert settled[0] >= 3  # 2,400 tokens a second, 1,000 a replica


def test_noise_around_a_threshold_does_not_flap() -> None:
    town = Town()
    for second in range(1500):
        arrived = 5 if second % 2 else 3
        town.second(arrived=arrived, arrived_tokens=600 * arrived)
    settled = town.serving[700:]
    assert sum(before != after for before, after in pairwise(settled)) == 0


def test_growth_is_met_before_it_is_there() -> None:
    town = Town(ready=1)
    for second in range(240):
        rate = 1000 * second / 120
        town.second(arrived=rate / 100, arrived_tokens=rate)
        if second > 90:
            assert town.ready >= rate / RULES.prefill_tokens_per_s


def test_it_shrinks_only_when_the_window_has_passed() -> None:
    town = Town()
    town.second(**BURST)
    grown = town.serving[-1]
    assert grown > 2
    town.seconds(int(RULES.window_s) - 5)
    assert min(town.serving) >= grown - 1  # a burst that stays alone weighs a little less
    assert town.seconds(10).reason is Reason.STEADY
    town.seconds(60)
    assert town.serving[-1] == 1
    assert Reason.SURPLUS in {decision.reason for decision in town.decisions}


def test_headroom_keeps_a_fleet_that_would_only_just_do() -> None:
    def settled(headroom: float) -> int:
        town = Town(replace(RULES, headroom=headroom), ready=8)
        town.seconds(900, arrived=4, arrived_tokens=2400)
        return town.serving[-1]

    assert settled(1.0) > settled(0.0)


def test_what_a_start_takes_is_learned_and_a_longer_one_holds_longer() -> None:
    town = Town(replace(RULES, hold_s=0.0), start_s=5.0)
    town.second(**BURST)
    town.seconds(10)
    assert town.ready == town.serving[-1]
    # Learned: 5 s. The peak is given up so long after the window, not 30 s.
    town.seconds(int(RULES.window_s))
    assert town.serving[-1] == 1


def test_nothing_is_started_for_traffic_that_does_not_reach_an_engine() -> None:
    town = Town()
    town.seconds(300)  # a cache answers: no arrival is reported
    assert set(town.serving) == {1}


ZERO = replace(RULES, min_replicas=0, zero_after_s=60.0)


def test_an_idle_fleet_goes_to_zero_and_not_sooner() -> None:
    town = Town(ZERO, ready=2)
    town.second(arrived=1, arrived_tokens=10)
    town.seconds(59)
    assert town.serving[-1] >= 1
    decision = town.seconds(2)
    assert (decision.serving, decision.reason) == (0, Reason.IDLE)
    town.seconds(100)
    assert set(town.serving[-100:]) == {0}


def test_running_requests_keep_a_fleet_alive() -> None:
    town = Town(ZERO)
    for _ in range(500):
        load = FleetLoad(ready=(replace(IDLE, running=1),))
        town.now += 1.0
        assert town.autoscaler.decide(load, town.now).serving == 1


def test_the_first_request_wakes_a_fleet_from_zero() -> None:
    town = Town(ZERO, ready=0)
    town.seconds(10)
    assert town.serving[-1] == 0
    decision = town.second(arrived=1, arrived_tokens=50, queued=1, queued_tokens=50)
    assert (decision.start, decision.reason) == (1, Reason.BACKLOG)
    town.seconds(20, queued=1, queued_tokens=50)
    assert town.serving[-1] == 1


def test_a_fleet_of_zero_that_nobody_asks_stays_so() -> None:
    town = Town(ZERO, ready=0)
    town.seconds(1000)
    assert set(town.serving) == {0}


def test_sleeping_replicas_are_woken_before_others_are_started() -> None:
    town = Town(ready=1)
    town.sleeping = 2
    decision = town.second(**BURST)
    assert decision.wake == 2
    assert decision.start == decision.serving - 3


def test_replicas_are_put_to_sleep_up_to_the_limit_and_the_rest_stopped() -> None:
    town = Town(replace(RULES, max_sleeping=2), ready=6)
    town.seconds(300)
    assert (town.serving[-1], town.sleeping) == (1, 2)
    assert sum(decision.stop for decision in town.decisions) == 3


def test_what_still_starts_is_called_off_and_not_put_to_sleep() -> None:
    autoscaler = Autoscaler(replace(RULES, max_sleeping=3))
    autoscaler.decide(fleet(1), 1.0)
    decision = autoscaler.decide(fleet(1, starting=2), 1000.0)
    assert (decision.stop, decision.sleep) == (2, 0)


def test_what_a_policy_finds_when_it_is_made_is_kept_until_its_traffic_was_seen() -> None:
    rules = replace(RULES, hold_s=100.0)
    autoscaler = Autoscaler(rules)
    first = [autoscaler.decide(fleet(3), 1.0 + second).serving for second in range(100)]
    assert set(first) == {3}
    assert autoscaler.decide(fleet(3), 1.0 + 2 * rules.hold_s).serving == 1


def test_a_full_kv_cache_asks_for_more() -> None:
    full = replace(IDLE, running=8, kv_cache_usage=0.99)
    decision = Autoscaler(RULES).decide(FleetLoad(ready=(full, full)), 1.0)
    assert (decision.serving, decision.reason) == (3, Reason.BUSY)


def test_slow_streams_ask_for_more_if_there_is_an_objective() -> None:
    slow = replace(IDLE, running=4, itl_s=0.09)
    load = FleetLoad(ready=(slow, slow))
    decision = Autoscaler(replace(RULES, itl_objective_s=0.05)).decide(load, 1.0)
    assert (decision.serving, decision.reason) == (4, Reason.TOKEN_GAPS)
    assert Autoscaler(RULES).decide(load, 1.0).start == 0


def test_late_first_tokens_that_the_model_does_not_explain_add_one_at_a_time() -> None:
    town = Town(ready=1)
    town.seconds(120, arrived=1, arrived_tokens=10, first_tokens=1, late_first_tokens=0.5)
    assert town.serving[-1] == 2
    assert Reason.FIRST_TOKENS in {decision.reason for decision in town.decisions}
    town.seconds(250, arrived=1, arrived_tokens=10, first_tokens=1)
    assert town.serving[-1] == 2
    town.seconds(200, arrived=1, arrived_tokens=10, first_tokens=1)
    assert town.serving[-1] == 1


def test_a_few_late_answers_within_the_share_are_accepted() -> None:
    town = Town(ready=1)
    town.seconds(500, arrived=1, arrived_tokens=10, first_tokens=1, late_first_tokens=0.05)
    assert set(town.serving) == {1}


@pytest.mark.parametrize("ready", [1, 4, 12])
def test_decisions_are_values_that_a_log_can_show(ready: int) -> None:
    decision = Autoscaler(RULES).decide(fleet(ready), 1.0)
    assert str(decision.reason) in set(Reason)
    assert decision.replicas == decision.serving


def test_the_largest_burst_of_the_window_is_not_worth_a_fleet_of_its_own() -> None:
    def grown(worth_share: float) -> int:
        town = Town(replace(RULES, worth_share=worth_share, max_replicas=100), ready=2)
        for second in range(280):
            town.second(arrived=0 if second % 10 else 5, arrived_tokens=0 if second % 10 else 500)
        town.second(arrived=200, arrived_tokens=20_000)
        return town.seconds(3).serving

    assert grown(worth_share=0.1) < grown(worth_share=0.0)


def test_one_small_burst_of_long_prompts_is_not_worth_a_replica() -> None:
    town = Town(replace(RULES, prefill_tokens_per_s=8000.0), ready=1)
    town.seconds(100)
    town.second(arrived=6, arrived_tokens=24_000)
    town.seconds(100)
    assert set(town.serving) == {1}


def test_without_a_worth_the_objective_is_held_by_as_many_as_it_takes() -> None:
    town = Town(replace(RULES, max_replicas=200, worth_share=0.0), ready=1)
    for second in range(60):
        town.second(arrived=0 if second % 10 else 600, arrived_tokens=0 if second % 10 else 60_000)
    assert town.serving[-1] >= 40  # 60,000 tokens at once, some 1,400 a replica within the objective


def test_answers_that_waited_for_the_fleet_of_before_are_not_held_against_the_new_one() -> None:
    autoscaler = Autoscaler(replace(RULES, min_replicas=2))
    autoscaler.decide(fleet(1, starting=1), 0.0)
    for second in range(1, int(SETTLED_S)):
        decision = autoscaler.decide(fleet(2, first_tokens=30, late_first_tokens=30), float(second))
    assert decision.serving == 2
    for second in range(int(SETTLED_S), 3 * int(SETTLED_S)):
        decision = autoscaler.decide(fleet(2, first_tokens=30, late_first_tokens=30), float(second))
    assert (decision.serving, decision.reason) == (3, Reason.FIRST_TOKENS)
