"""An engine's pace comes out of its steps, whatever the load."""

from __future__ import annotations

import pytest

from serve_app.autoscaling import EngineSpeed


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


def test_a_step_without_a_finished_prompt_changes_nothing() -> None:
    speed = EngineSpeed()
    speed.prefilled(0, [], 1.0, full=False)
    speed.decoded([])
    assert (speed.prefill_tokens_per_s, speed.itl_s) == (None, None)


def test_the_first_samples_weigh_alike_and_later_ones_replace_what_was() -> None:
    speed = EngineSpeed()
    speed.served(1.0)
    speed.served(3.0)
    assert speed.service_s == pytest.approx(2.0)
    for _ in range(100):
        speed.served(10.0)
        speed.decoded([0.01, 0.03])
    assert speed.service_s == pytest.approx(10.0, rel=0.01)
    assert speed.itl_s == pytest.approx(0.02)
