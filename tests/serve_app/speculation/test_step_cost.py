"""A drafted token costs little while a step waits for memory, and its full share in a full batch."""

from __future__ import annotations

import random

import pytest

from serve_app.speculation import StepCost, StepTimes


def test_a_step_without_drafts_costs_one() -> None:
    assert StepCost(draft=0.3, knee_tokens=8).of(0, 4) == 1.0


def test_at_low_load_only_drafting_costs() -> None:
    assert StepCost(draft=0.05, knee_tokens=1e9).of(5, 1) == pytest.approx(1.25)


def test_the_load_makes_each_token_more_dear() -> None:
    cost = StepCost(knee_tokens=256)
    costs = [cost.of(4, batch) for batch in (1, 16, 64, 256, 4096)]
    assert costs == sorted(costs)
    assert costs[0] < 1.02
    assert 4 < costs[-1] < 5


def test_requests_without_a_draft_cost_nothing_more() -> None:
    cost = StepCost(draft=0.1, knee_tokens=8)
    assert cost.of(0, 8) == 1.0
    assert cost.of(2, 8) < cost.of(4, 8)


def test_the_knee_is_read_from_durations() -> None:
    choose = random.Random(0)
    times = StepTimes()
    for _ in range(300):
        tokens = choose.randint(1, 20)
        times.observe(tokens, 0.02 * (1 + tokens / 8) * choose.uniform(0.9, 1.1))
    assert times.knee_tokens == pytest.approx(8, rel=0.25)


def test_a_knee_that_moved_is_found_again() -> None:
    choose = random.Random(1)
    times = StepTimes()
    for knee in (100.0, 4.0):
        for _ in range(600):
            tokens = choose.randint(1, 20)
            times.observe(tokens, 0.01 * (1 + tokens / knee))
    assert times.knee_tokens == pytest.approx(4, rel=0.05)


def test_steps_that_waited_for_something_else_hardly_move_the_knee() -> None:
    choose = random.Random(2)
    times = StepTimes()
    for number in range(600):
        tokens = choose.randint(1, 5)
        times.observe(tokens, 0.02 * (1 + tokens / 8) + (1.0 if number % 50 == 49 else 0.0))
    assert times.knee_tokens == pytest.approx(8, rel=0.5)


@pytest.mark.parametrize("tokens", [[], [5] * 200, [1, 8]])
def test_steps_that_are_few_or_alike_tell_nothing(tokens: list[int]) -> None:
    times = StepTimes()
    for number in tokens:
        times.observe(number, 0.01)
    assert times.knee_tokens is None


def test_durations_that_do_not_grow_are_a_step_that_waits_for_memory() -> None:
    times = StepTimes()
    for number in range(100):
        times.observe(1 + number % 8, 0.01)
    assert times.knee_tokens is not None
    assert times.knee_tokens >= 256


def test_durations_that_are_all_computing_have_the_lowest_knee() -> None:
    times = StepTimes()
    for number in range(100):
        times.observe(1 + number % 8, 0.01 * (1 + number % 8))
    assert times.knee_tokens == pytest.approx(1.0)
