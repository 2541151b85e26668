"""What an operator sees of speculation follows the engine's steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_app.speculation import (
    Drafting,
    Sample,
    SpeculationMeter,
    SpeculationReport,
    StepCost,
    StepCounts,
)

DRAFTED = StepCounts(decoding=2, drafts=2, drafted=8, accepted=6, longest=4, goes_on=True)
PLAIN = StepCounts(decoding=2, goes_on=True)


def metered(*steps: StepCounts, seconds: float = 0.01) -> SpeculationReport:
    """A report after ``steps``, each of which took ``seconds``."""
    meter = SpeculationMeter()
    for number, step in enumerate(steps):
        meter.observe(step, number * seconds)
    return meter.report()


def test_an_engine_that_did_nothing_reports_nothing() -> None:
    assert SpeculationMeter().report() == SpeculationReport()


def test_tokens_are_counted_since_the_start() -> None:
    report = metered(*[DRAFTED] * 10)
    assert (report.draft_tokens, report.accepted_tokens) == (80, 60)
    assert report.acceptance_rate == pytest.approx(0.75)
    assert report.mean_accepted_length == pytest.approx(4.0)
    assert report.depth == 4


def test_rates_follow_the_newest_steps() -> None:
    refused = replace(DRAFTED, accepted=0)
    report = metered(*[DRAFTED] * 100, *[refused] * 3000)
    assert report.acceptance_rate < 0.02
    assert report.accepted_tokens == 600


def test_the_depth_falls_to_zero_when_nothing_is_drafted_any_more() -> None:
    assert metered(*[DRAFTED] * 40, *[PLAIN] * 10).depth == 4
    assert metered(*[DRAFTED] * 40, *[PLAIN] * 64).depth == 0


def test_steps_that_are_all_alike_give_no_speed_up() -> None:
    assert metered(*[DRAFTED] * 100).speed_up is None


def test_the_speed_up_is_tokens_over_the_measured_cost_of_a_step() -> None:
    """Steps of 2 and 10 tokens take 12 and 20 ms: 1 + tokens / 10 of 10 ms."""
    meter, now = SpeculationMeter(), 0.0
    for _ in range(200):
        for step, seconds in ((PLAIN, 0.012), (DRAFTED, 0.020)):
            now += seconds
            meter.observe(step, now)
    # Half of the steps have drafts: 2.5 tokens a request and step, at 6 tokens a step (2 without).
    assert meter.report().speed_up == pytest.approx(2.5 / (1.6 / 1.2), rel=0.05)


def test_drafting_that_every_step_does_is_part_of_the_step_that_the_speed_up_compares_with() -> None:
    """Steps of 2 and 10 tokens, and 8 ms of drafting in both: 20 ms without checking, 28 with."""
    meter, now = SpeculationMeter(), 0.0
    for _ in range(200):
        for step, seconds in ((PLAIN, 0.020), (DRAFTED, 0.028)):
            now += seconds
            meter.observe(step, now)
    assert meter.report().speed_up == pytest.approx(2.5 / (24 / 20), rel=0.05)


def test_a_pause_between_requests_is_no_step() -> None:
    meter, now = SpeculationMeter(), 0.0
    for number in range(400):
        step, seconds = (PLAIN, 0.012) if number % 2 else (DRAFTED, 0.020)
        now += seconds
        meter.observe(replace(step, goes_on=number % 10 != 0), now)
        now += 5.0 if number % 10 == 0 else 0.0
    assert meter.report().speed_up == pytest.approx(2.5 / (1.6 / 1.2), rel=0.1)


def test_a_step_with_a_prompt_is_not_timed() -> None:
    meter, now = SpeculationMeter(), 0.0
    for number in range(400):
        step, seconds = (PLAIN, 0.012) if number % 2 else (DRAFTED, 0.020)
        if number % 7 == 0:
            step, seconds = replace(step, prefilled=1), 3.0
        now += seconds
        meter.observe(step, now)
    assert meter.report().speed_up == pytest.approx(2.5 / (1.6 / 1.2), rel=0.1)


def test_the_measured_speed_up_is_tokens_over_cost() -> None:
    sample = Sample(steps=10, drafts=10, given=Drafting(steps=10, drafted=40, accepted=20))
    assert sample.speed_up(StepCost(knee_tokens=1e9)) == pytest.approx(3.0)
    assert Sample().speed_up(StepCost()) == 1.0
