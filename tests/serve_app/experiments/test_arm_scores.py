"""Verdicts on what a judge says of the arms of an experiment."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.evaluation.verdict import Verdict
from serve_app.experiments.scores import LOOKS, MOST_UNITS, ArmScores, judged, looks


def scored(rng: np.random.Generator, units: int, mean: float = 0.7) -> ArmScores:
    """As judges grade: tenths."""
    scores = ArmScores()
    for _ in range(units):
        scores.add(rng.random(), round(min(max(rng.normal(mean, 0.2), 0), 1), 1))
    return scores


def test_a_large_loss_is_found_soon_and_equal_arms_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    control = scored(rng, 60)
    assert judged(control, scored(rng, 50, 0.4), 1).verdict == Verdict.WORSE
    assert judged(control, scored(rng, 50), 1).verdict != Verdict.WORSE
    assert judged(scored(rng, 900), scored(rng, 900), 1).verdict == Verdict.NOT_WORSE


def test_looking_again_and_again_at_equal_arms_hardly_ever_ends_one() -> None:
    rng = np.random.default_rng(2)
    ended = 0
    for _ in range(60):
        control, arm = ArmScores(), ArmScores()
        for number in range(LOOKS[3]):
            for scores in (control, arm):
                scores.add(number + rng.random(), round(float(rng.beta(3, 1)), 1))
            if number + 1 in LOOKS:
                ended += judged(control, arm, 1).verdict == Verdict.WORSE
    assert ended <= 3


def test_many_answers_of_one_session_count_as_one() -> None:
    control, arm = ArmScores(), ArmScores()
    for number in range(LOOKS[0]):
        control.add(number, 0.8)
    for _ in range(1000):
        arm.add(0.5, 0.0)
    assert looks(control, arm) == 0
    assert arm.means == [0.0]


@pytest.mark.parametrize(("units", "reached"), [(24, 0), (25, 1), (49, 1), (50, 2), (1000, len(LOOKS))])
def test_an_arm_is_looked_at_when_it_has_twice_as_many(units: int, reached: int) -> None:
    rng = np.random.default_rng(3)
    assert looks(scored(rng, 1000), scored(rng, units)) == reached


def test_scores_of_several_gateways_are_put_together_by_session() -> None:
    one, two = ArmScores(), ArmScores()
    one.add(1.0, 0.2)
    two.add(1.0, 0.6)
    two.add(2.0, 1.0)
    together = one.with_others([two.units])
    assert together.means == [pytest.approx(0.4), 1.0]
    assert one.means == [0.2]


def test_memory_is_bounded() -> None:
    scores = ArmScores()
    for number in range(MOST_UNITS + 10):
        scores.add(number, 1.0)
    assert len(scores.units) == MOST_UNITS
    scores.add(0.0, 0.0)  # a session that is known still counts
    assert scores.means[0] == 0.5
