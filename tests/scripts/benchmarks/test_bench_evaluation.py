"""The benchmark of verdicts: what it plants, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.evaluation import ANSWERS, CASES, MODEL, drawn, judged, measured, percent, recorded_scores
from sim_engine import SimSettings
from support.sim import running

from serve_app.evaluation.verdict import Verdict

RECORDED = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]


def means(planted: float) -> tuple[float, float]:
    suites = [drawn(RECORDED, planted, seed) for seed in range(200)]
    return float(np.mean([one for one, _ in suites])), float(np.mean([two for _, two in suites]))


def test_the_planted_loss_is_five_points() -> None:
    one, two = means(0.05)
    assert one - two == pytest.approx(0.05, abs=0.005)


def test_without_one_both_sides_are_the_same() -> None:
    one, two = means(0.0)
    assert one == pytest.approx(two, abs=0.005)
    suite = drawn(RECORDED, 0.0, 1)
    assert len(suite[0]) == len(suite[1]) == CASES
    assert suite[0] != suite[1]


def test_the_recorded_answers_are_enough_for_both_sides() -> None:
    recorded = recorded_scores(ANSWERS)
    assert len(recorded) >= 20
    assert all(len(scores) == 2 and 0 <= min(scores) <= max(scores) <= 1 for scores in recorded)


def test_verdicts_are_counted_in_percent() -> None:
    verdicts = [Verdict.WORSE, Verdict.UNDECIDED, Verdict.NOT_WORSE, Verdict.WORSE]
    assert percent(verdicts) == 50.0
    assert percent(verdicts, Verdict.NOT_WORSE) == 25.0


async def test_times_are_measured_as_the_command_does_it() -> None:
    fast = SimSettings(model=MODEL, itl_ms=1.0, tokens=3)
    async with running(fast) as one, running(replace(fast, first_token_ms=80.0)) as two:
        pairs = await measured(one.url, two.url, 20, seed=1)
    assert judged(pairs)["ttft"].verdict == Verdict.WORSE
