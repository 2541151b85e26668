"""How late requests would be follows from prompts, slots and the number of replicas."""

from __future__ import annotations

import random

import pytest

from serve_app.autoscaling import Bin, Capacity, FleetLoad, ReplicaLoad, ScalingRules
from serve_app.autoscaling.arrivals import Rate
from serve_app.autoscaling.capacity import least

FAST = Capacity(prefill_tokens_per_s=1000.0, service_s=1.0, slots=1000.0)
"""Only prompts matter."""

NARROW = Capacity(prefill_tokens_per_s=1e9, service_s=10.0, slots=4.0)
"""Only slots matter."""


def bins(*requests: float, tokens: float = 100.0) -> list[Bin]:
    """One second each."""
    return [Bin(float(second + 1), 1.0, number, number * tokens) for second, number in enumerate(requests)]


def random_bins(seed: int) -> list[Bin]:
    choose = random.Random(seed)
    return bins(*(choose.choice([0, 0, 1, 5, 40]) for _ in range(200)), tokens=choose.choice([10, 300, 2000]))


def test_traffic_within_the_rate_is_never_late() -> None:
    assert FAST.late_requests(bins(*[9] * 100), 1, 1.0) == 0.0


def test_a_burst_makes_late_what_no_time_is_left_for() -> None:
    # 0.1 s of each request's own prompt: the line may be 0.9 s long, 900 of the tokens that are ahead of the
    # last request: 2,000 less its own 100, less what half the second works off.
    assert FAST.late_requests(bins(20), 1, 1.0) == pytest.approx(20 * 500 / 1400)
    assert FAST.late_requests(bins(20), 2, 1.0) == 0.0


def test_a_backlog_stays_until_it_is_prefilled() -> None:
    assert FAST.late_requests(bins(50, 0, 1), 1, 1.0) == pytest.approx(50 * 3500 / 4400 + 1)
    assert FAST.late_requests(bins(50, 0, 0, 0, 0, 1), 1, 1.0) == pytest.approx(50 * 3500 / 4400)


def test_requests_wait_for_seats() -> None:
    assert NARROW.late_requests(bins(4), 1, 1.0) == 0.0
    # Each of the four slots is free again after 10 s: the fifth request waits for 2.5 s.
    assert NARROW.late_requests(bins(8), 1, 1.0) == pytest.approx(4.0 - 0.4)
    assert NARROW.late_requests(bins(8), 1, 2.5) == pytest.approx(4.0 - 1.0)
    assert NARROW.late_requests(bins(8), 2, 1.0) == 0.0
    assert NARROW.late_requests(bins(4, 0, 0, 2), 1, 1.0) > 0.0


def test_a_prompt_longer_than_the_objective_may_still_wait_a_little() -> None:
    assert FAST.late_requests(bins(1, tokens=5000), 1, 1.0) == 0.0
    assert FAST.late_requests(bins(2, tokens=5000), 1, 1.0) > 0
    assert FAST.late_requests(bins(2, tokens=5000), 20, 1.0) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_more_replicas_or_a_wider_objective_never_make_more_late(seed: int) -> None:
    traffic, capacity = random_bins(seed), Capacity(2000.0, 3.0, 8.0)
    by_replicas = [capacity.late_requests(traffic, replicas, 1.0) for replicas in range(1, 30)]
    assert by_replicas == sorted(by_replicas, reverse=True)
    by_objective = [capacity.late_requests(traffic, 4, objective) for objective in (0.5, 1, 2, 5, 10)]
    assert by_objective == sorted(by_objective, reverse=True)
    by_growth = [capacity.late_requests(traffic, 4, 1.0, growth) for growth in (1.0, 1.5, 2.0)]
    assert by_growth == sorted(by_growth)


def test_a_steady_rate_keeps_busy_what_its_prompts_or_its_seats_take() -> None:
    assert FAST.replicas_for(Rate(1.0, 2500.0)) == pytest.approx(2.5)
    assert NARROW.replicas_for(Rate(1.0, 2500.0)) == pytest.approx(2.5)


def test_a_backlog_that_is_gone_before_a_start_needs_nobody() -> None:
    load = FleetLoad(ready=(ReplicaLoad(waiting_tokens=5000.0),))
    assert FAST.replicas_for_backlog(load, Rate(), lead_s=10.0, clear_s=10.0) == 0.0


def test_a_backlog_that_outlasts_a_start_is_shared_by_as_many_as_clear_it() -> None:
    load = FleetLoad(ready=(ReplicaLoad(),), queued=100, queued_tokens=50_000.0)
    # 40,000 tokens are left after 10 s; 10 s to clear them.
    assert FAST.replicas_for_backlog(load, Rate(), lead_s=10.0, clear_s=10.0) == pytest.approx(4.0)


def test_a_line_for_seats_counts_as_a_prompt_backlog_does() -> None:
    load = FleetLoad(ready=(ReplicaLoad(running=4),), queued=16)
    # 16 wait, 4 of them get a slot within the 10 s of a start; each keeps a quarter of a replica for 10 s.
    assert NARROW.replicas_for_backlog(load, Rate(), lead_s=10.0, clear_s=10.0) == pytest.approx(3.0)


def test_what_is_measured_goes_before_what_was_expected_and_is_kept() -> None:
    rules = ScalingRules(max_replicas=4, prefill_tokens_per_s=8000.0, service_s=5.0)
    first = Capacity.expected(rules)
    assert (first.prefill_tokens_per_s, first.service_s) == (8000.0, 5.0)
    load = FleetLoad(ready=(ReplicaLoad(prefill_tokens_per_s=100.0, capacity=32), ReplicaLoad(capacity=32)))
    measured = first.measured(load, rules)
    assert measured == Capacity(100.0, 5.0, 32.0)
    assert measured.measured(FleetLoad(), rules) == measured


def test_seats_are_no_more_than_a_replica_should_carry() -> None:
    rules = ScalingRules(max_replicas=4, requests_per_replica=6.0)
    load = FleetLoad(ready=(ReplicaLoad(capacity=32), ReplicaLoad(capacity=4)))
    assert Capacity.expected(rules).measured(load, rules).slots == pytest.approx(5.0)


@pytest.mark.parametrize("most", [1, 2, 7, 16])
def test_the_least_number_that_holds_is_found_from_any_guess(most: int) -> None:
    for threshold in range(1, most + 3):
        for guess in range(-1, most + 3):
            assert least(lambda number, at=threshold: number >= at, most, guess) == min(threshold, most)  # type: ignore[misc]


def test_a_good_guess_costs_two_calls() -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= 7

    assert least(holds, 1000, 7) == 7
    assert asked == [7, 6]
