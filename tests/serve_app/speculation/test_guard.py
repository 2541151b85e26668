"""Speculation never costs more than it gains: the guard against a simulated engine.

The simulated engine accepts each drafted token with a fixed probability and takes 1 + tokens / knee a step.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from serve_app.speculation import (
    GuardPolicy,
    GuardState,
    Sample,
    StepCost,
    StepTimes,
    acceptance_rate,
    begin,
    decide,
    expected_tokens,
)

POLICY = GuardPolicy(most=4)


@dataclass
class Engine:
    """Time is in units of reading the weights once."""

    acceptance: float
    knee: float
    batch: int = 1
    coverage: float = 1.0
    choose: random.Random = field(default_factory=lambda: random.Random(7))

    def step(self, depth: int) -> tuple[Sample, float]:
        drafts = sum(depth > 0 and self.choose.random() < self.coverage for _ in range(self.batch))
        accepted = sum(self._accepted(depth) for _ in range(drafts))
        seconds = 1 + (self.batch + drafts * depth) / self.knee
        return Sample(1, self.batch, drafts, drafts * depth, accepted), seconds

    def _accepted(self, depth: int) -> int:
        count = 0
        while count < depth and self.choose.random() < self.acceptance:
            count += 1
        return count

    def without(self) -> float:
        """Seconds a token and request without speculation."""
        return 1 + self.batch / self.knee

    def at(self, depth: int) -> float:
        """Seconds a token and request at a fixed depth, expected."""
        tokens = 1 + self.coverage * (expected_tokens(self.acceptance, depth) - 1)
        return (1 + self.batch * (1 + self.coverage * depth) / self.knee) / tokens


@dataclass
class Run:
    """A guarded engine: state, what it measured, and what it gave."""

    policy: GuardPolicy
    state: GuardState
    times: StepTimes = field(default_factory=StepTimes)
    seconds: float = 0.0
    tokens: float = 0.0
    depths: list[int] = field(default_factory=list)

    def windows(self, engine: Engine, count: int) -> float:
        """Seconds a token and request over these windows."""
        seconds = tokens = 0.0
        for _ in range(count):
            self.depths.append(self.state.depth)
            window = Sample()
            for _ in range(self.policy.window_steps):
                sample, took = engine.step(self.state.depth)
                self.times.observe(int(sample.request_steps + sample.drafted), took)
                window += sample
                seconds += took
                tokens += (sample.request_steps + sample.accepted) / engine.batch
            cost = StepCost(knee_tokens=self.times.knee_tokens or 256.0)
            self.state = decide(self.policy, self.state, window, cost)
        return seconds / tokens


def guarded() -> Run:
    return Run(POLICY, begin(POLICY))


@pytest.mark.parametrize("coverage", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("acceptance", [0.0, 0.1, 0.3])
def test_text_that_cannot_be_drafted_costs_at_most_three_percent(acceptance: float, coverage: float) -> None:
    engine = Engine(acceptance, knee=4, coverage=coverage)
    assert guarded().windows(engine, 400) <= 1.03 * engine.without()


def test_plain_speculation_loses_where_the_guard_does_not() -> None:
    engine = Engine(0.1, knee=4)
    assert engine.at(4) > 1.5 * engine.without()
    assert guarded().windows(engine, 400) <= 1.03 * engine.without()


@pytest.mark.parametrize("knee", [8.0, 64.0])
@pytest.mark.parametrize("acceptance", [0.7, 0.9])
@pytest.mark.parametrize("coverage", [0.4, 1.0])
def test_text_that_can_be_drafted_gets_nearly_what_the_best_depth_gives(
    acceptance: float, knee: float, coverage: float
) -> None:
    engine = Engine(acceptance, knee=knee, coverage=coverage)
    best = min(engine.at(depth) for depth in range(5))
    assert guarded().windows(engine, 200) <= 1.05 * best


def test_a_full_batch_turns_it_off_and_a_quiet_hour_on_again_without_a_try() -> None:
    run, quiet = guarded(), Engine(0.6, knee=64)
    run.windows(quiet, 20)
    assert run.state.depth > 0
    busy = replace(quiet, batch=512)
    run.windows(busy, 6)
    assert run.state.depth == 0
    run.windows(quiet, 2)
    assert run.state.depth > 0
    assert not run.state.tries


def test_between_quiet_and_full_the_depth_falls_with_the_load() -> None:
    depths = []
    for batch in (1, 32, 96, 1024):
        run = guarded()
        run.windows(Engine(0.7, knee=128, batch=batch), 12)
        depths.append(run.state.depth)
    assert depths == sorted(depths, reverse=True)
    assert depths[0] == 4
    assert depths[-1] == 0


def test_text_that_changes_is_noticed_by_a_try() -> None:
    run, engine = guarded(), Engine(0.02, knee=4)
    run.windows(engine, 12)
    assert run.state.depth == 0
    engine.acceptance = 0.95
    run.windows(engine, POLICY.longest_pause + 4)
    assert run.state.depth >= 2


def test_pauses_between_tries_double_up_to_a_bound() -> None:
    run = guarded()
    run.windows(Engine(0.0, knee=4), 400)
    tries = [number for number, depth in enumerate(run.depths) if depth == 1]
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps[:4] == [9, 17, 33, 65]
    assert set(gaps[4:]) == {65}


def test_few_drafts_decide_nothing() -> None:
    window = Sample(steps=32, request_steps=32, drafts=3, drafted=12, accepted=0)
    state = decide(POLICY, GuardState(POLICY.most, next_pause=4), window, StepCost(knee_tokens=2))
    assert state.depth == POLICY.most
    assert "too few" in state.reason


def test_a_small_difference_does_not_move_the_depth() -> None:
    """Depth 3 and 4 are within two percent here."""
    run, engine = guarded(), Engine(0.66, knee=10.0)
    assert engine.at(3) == pytest.approx(engine.at(4), rel=0.02)
    run.windows(engine, 60)
    assert sum(a != b for a, b in pairwise(run.depths)) <= 4


def test_a_draft_model_that_is_too_slow_is_turned_off() -> None:
    window = Sample(steps=32, request_steps=32, drafts=32, drafted=128, accepted=64)
    cheap = decide(POLICY, GuardState(POLICY.most, next_pause=4), window, StepCost(draft=0.05))
    slow = decide(POLICY, GuardState(POLICY.most, next_pause=4), window, StepCost(draft=0.9))
    assert (cheap.depth, slow.depth) == (4, 0)
    assert slow.reason.endswith("off for 4 windows")
    assert slow.speed_up == 1.0


def test_the_measured_speed_up_is_tokens_over_cost() -> None:
    window = Sample(steps=10, request_steps=10, drafts=10, drafted=40, accepted=20)
    assert window.speed_up(StepCost(knee_tokens=1e9)) == pytest.approx(3.0)
    assert Sample().speed_up(StepCost()) == 1.0


def test_a_reason_says_what_was_measured() -> None:
    window = Sample(steps=32, request_steps=64, drafts=32, drafted=128, accepted=100)
    state = decide(POLICY, GuardState(POLICY.most, next_pause=4), window, StepCost())
    rate = acceptance_rate(32, 128, 100)
    assert state.reason.startswith(f"acceptance {rate:.2f} in 50% of the steps at batch 2.0: ")
