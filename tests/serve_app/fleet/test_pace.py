"""The pace follows what is measured, as fast as it should and no faster."""

from __future__ import annotations

import pytest

from serve_app.fleet.pace import (
    LEAST_TOKENS,
    PRIOR_PREFILL_S_PER_TOKEN,
    PRIOR_SERVICE_S,
    RECOVERY_S,
    Pace,
)


def pace_of(s_per_token: float, answers: int = 20) -> Pace:
    pace = Pace()
    for _ in range(answers):
        pace.saw_first_byte(1000 * s_per_token, 1000, 1000)
    return pace


def test_before_the_first_answer_the_priors_hold() -> None:
    assert (Pace().prefill_s_per_token, Pace().service_s) == (PRIOR_PREFILL_S_PER_TOKEN, PRIOR_SERVICE_S)


def test_the_first_answer_replaces_the_priors() -> None:
    pace = Pace()
    pace.saw_first_byte(2.0, 1000, 400)
    pace.saw_end(7.0)
    assert pace.prefill_s_per_token == pytest.approx(0.002)
    assert (pace.prompt_tokens, pace.service_s) == (400, 7.0)


def test_one_slow_answer_weighs_no_more_than_its_share() -> None:
    pace = pace_of(0.001)
    pace.saw_first_byte(10.0, 1000, 1000)
    assert pace.prefill_s_per_token == pytest.approx(0.0019)


def test_the_first_of_many_answers_is_forgotten_like_the_others() -> None:
    pace = Pace()
    pace.saw_end(100.0)
    for _ in range(9):
        pace.saw_end(1.0)
    assert pace.service_s == pytest.approx(10.9)


def test_a_change_is_followed_within_some_tens_of_answers() -> None:
    pace = pace_of(0.001)
    for _ in range(40):
        pace.saw_first_byte(4.0, 1000, 1000)
    assert pace.prefill_s_per_token == pytest.approx(0.004, rel=0.05)


def test_short_prompts_whose_time_is_overhead_do_not_make_long_ones_look_slow() -> None:
    pace = Pace()
    for _ in range(50):
        pace.saw_first_byte(0.02 + 10 * 1e-4, 10, 10)
        pace.saw_first_byte(0.02 + 10_000 * 1e-4, 10_000, 10_000)
    assert pace.prefill_s_per_token == pytest.approx(1e-4, rel=0.05)


def test_prompts_that_are_cached_whole_do_not_make_a_token_cost_a_step() -> None:
    pace = Pace()
    for _ in range(500):
        pace.saw_first_byte(0.02, 0.0, 0.0)
    assert pace.prefill_s_per_token == pytest.approx(0.02 / LEAST_TOKENS)


def test_a_new_member_starts_as_its_siblings_that_have_answered() -> None:
    pace = Pace.typical_of([pace_of(0.001), pace_of(0.003), Pace()])
    assert pace.prefill_s_per_token == pytest.approx(0.002)
    assert pace.first_bytes == 0
    assert Pace.typical_of([Pace()]) == Pace.typical_of([]) == Pace()


def test_a_member_without_work_comes_to_look_as_fast_as_the_fastest() -> None:
    pace = pace_of(0.010)
    for _ in range(40):
        pace.recover(0.001, RECOVERY_S / 40)
    assert 0.001 < pace.prefill_s_per_token < 0.005
    pace.recover(0.001, 10 * RECOVERY_S)
    assert pace.prefill_s_per_token == pytest.approx(0.001)
    pace.saw_first_byte(10.0, 1000, 1000)
    assert pace.prefill_s_per_token == pytest.approx(0.0019)  # and is found out again, if it is not


def test_a_member_without_work_never_looks_slower_for_it() -> None:
    pace = pace_of(0.001)
    pace.recover(0.010, RECOVERY_S)
    assert pace.prefill_s_per_token == pytest.approx(0.001)
