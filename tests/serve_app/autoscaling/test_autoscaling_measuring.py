"""An engine's pace comes out of its steps, whatever the load."""

from __future__ import annotations

import pytest

from serve_app.autoscaling import EngineSpeed
from serve_app.autoscaling.measuring import STALE_S


def test_nothing_is_known_before_something_was_seen() -> None:
    speed = EngineSpeed()
    assert (speed.prefill_tokens_per_s, speed.service_s, speed.itl_s) == (None, None, None)


def test_a_lone_prompt_takes_its_own_time_however_long_nothing_came() -> None:
    speed = EngineSpeed()
    speed.prefilled(1000, [0.5], 10.0, full=False)
    speed.prefilled(1000, [0.5], 500.0, full=False)
    assert speed.prefill_tokens_per_s == pytest.approx(2000)


def test_prompts_that_wait_for_each_other_are_not_slower_for_it() -> None:
    speed = EngineSpeed()
    for number in range(1, 6):  # all came at 0, each is done half a second after the one before
        speed.prefilled(1000, [0.5 * number], 0.5 * number, full=False)
    assert speed.prefill_tokens_per_s == pytest.approx(2000)


def test_prompts_that_are_done_in_one_step_share_its_time() -> None:
    speed = EngineSpeed()
    speed.prefilled(3000, [0.2, 0.5, 0.4], 1.0, full=False)
    assert speed.prefill_tokens_per_s == pytest.approx(6000)


def test_a_full_engine_says_nothing_of_its_pace() -> None:
    speed = EngineSpeed()
    speed.prefilled(1000, [0.5], 1.0, full=False)
    speed.prefilled(1000, [60.0], 100.0, full=True)
    speed.prefilled(1000, [60.0], 100.5, full=False)
    assert speed.prefill_tokens_per_s == pytest.approx(2000)


def test_what_was_measured_in_a_rush_is_not_said_of_an_engine_that_is_idle_since() -> None:
    speed = EngineSpeed()
    speed.prefilled(1000, [0.5], 10.0, full=False)
    speed.served(20.0, 30.0)
    assert speed.recent(30.0 + 0.9 * STALE_S) is speed
    later = speed.recent(30.0 + 1.1 * STALE_S)
    assert (later.prefill_tokens_per_s, later.service_s, later.itl_s) == (None, None, None)
    speed.served(2.0, 200.0)
    assert speed.recent(201.0).service_s == pytest.approx(2.0)


def test_an_engine_that_only_decodes_is_not_idle() -> None:
    speed = EngineSpeed()
    speed.served(2.0, 10.0)
    for second in range(10, 300):
        speed.decoded([0.03], float(second))
    assert (speed.recent(300.0).service_s, speed.recent(300.0).itl_s) == pytest.approx((2.0, 0.03))


def test_a_step_without_a_finished_prompt_changes_nothing() -> None:
    speed = EngineSpeed()
    speed.prefilled(0, [], 1.0, full=False)
    speed.decoded([], 1.0)
    assert (speed.prefill_tokens_per_s, speed.itl_s) == (None, None)


def test_the_first_samples_weigh_alike_and_later_ones_replace_what_was() -> None:
    speed = EngineSpeed()
    speed.served(1.0, 0.0)
    speed.served(3.0, 1.0)
    assert speed.service_s == pytest.approx(2.0)
    for second in range(100):
        speed.served(10.0, float(second))
        speed.decoded([0.01, 0.03], float(second))
    assert speed.service_s == pytest.approx(10.0, rel=0.01)
    assert speed.itl_s == pytest.approx(0.02)
