"""Chance is told from a difference."""

from __future__ import annotations

import random

import pytest
from benchmarks.significance import median_difference, paired_p


def pairs(shift: float, count: int = 40, seed: int = 1) -> list[tuple[float, float]]:
    noise = random.Random(seed)
    return [(noise.lognormvariate(1, 0.3), noise.lognormvariate(1, 0.3) + shift) for _ in range(count)]


def test_a_difference_is_the_first_ones_median_less_the_second_ones() -> None:
    assert median_difference([(1.0, 3.0), (2.0, 5.0), (3.0, 4.0)]) == -2.0


@pytest.mark.parametrize("shift", [-2.0, 2.0])
def test_a_shift_is_no_chance(shift: float) -> None:
    assert paired_p(pairs(shift)) < 0.001


def test_without_a_difference_small_ps_are_as_rare_as_they_say() -> None:
    ps = [paired_p(pairs(0.0, seed=seed), permutations=500) for seed in range(200)]
    assert sum(p <= 0.05 for p in ps) <= 20
    assert sum(p <= 0.5 for p in ps) >= 60


def test_equal_times_are_no_difference() -> None:
    assert paired_p([(1.0, 1.0)] * 20) == 1.0


def test_a_p_is_never_nought() -> None:
    assert 0 < paired_p([(1.0, 100.0)] * 200) < 0.001
