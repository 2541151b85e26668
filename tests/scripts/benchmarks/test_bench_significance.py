"""Chance is told from a difference."""

from __future__ import annotations

import random

import pytest
from benchmarks.significance import holm, median_difference, paired_p


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


def test_of_many_tests_the_smallest_p_counts_as_often_as_there_are_tests() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
