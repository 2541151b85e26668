"""The breaker opens after failures in a row, and then risks one trial a cool-down."""

from __future__ import annotations

import pytest

from serve_app.breaker import Breaker


def opened(threshold: int = 3, at: float = 0.0) -> Breaker:
    breaker = Breaker(threshold, cooldown_s=5.0)
    for _ in range(threshold):
        breaker.failed(at)
    return breaker


def test_a_new_breaker_is_closed() -> None:
    breaker = Breaker(threshold=1, cooldown_s=5.0)
    assert not breaker.is_open
    assert breaker.allows(0.0)


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_it_opens_at_the_threshold_and_not_before(threshold: int) -> None:
    breaker = Breaker(threshold, cooldown_s=5.0)
    seen = []
    for _ in range(threshold):
        seen.append((breaker.is_open, breaker.allows(0.0)))
        breaker.failed(0.0)
    assert seen == [(False, True)] * threshold
    assert breaker.is_open
    assert not breaker.allows(0.0)


def test_only_failures_in_a_row_count() -> None:
    breaker = Breaker(threshold=2, cooldown_s=5.0)
    for _ in range(10):
        breaker.failed(0.0)
        breaker.succeeded()
    assert not breaker.is_open


def test_a_closed_breaker_allows_any_number_of_calls() -> None:
    breaker = Breaker(threshold=2, cooldown_s=5.0)
    breaker.failed(0.0)
    assert all(breaker.allows(0.0) for _ in range(100))


def test_an_open_breaker_refuses_until_the_cool_down_is_over() -> None:
    breaker = opened(at=10.0)
    assert not breaker.allows(14.999)
    assert breaker.allows(15.0)


def test_one_trial_is_given_out_per_cool_down() -> None:
    breaker = opened(at=0.0)
    assert [now for now in range(21) if breaker.allows(float(now))] == [5, 10, 15, 20]


def test_a_trial_that_succeeds_closes_it() -> None:
    breaker = opened()
    assert breaker.allows(5.0)
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.allows(5.0)
    assert breaker.allows(5.0)


def test_a_trial_that_fails_opens_it_for_another_cool_down() -> None:
    breaker = opened()
    assert breaker.allows(5.0)
    breaker.failed(7.0)
    assert not breaker.allows(11.999)
    assert breaker.allows(12.0)


def test_after_it_closed_it_takes_the_whole_threshold_again_to_open() -> None:
    breaker = opened(threshold=3)
    breaker.succeeded()
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert not breaker.is_open
