"""Percentiles are nearest-rank over the newest samples of each series."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from serve_app.latency import LatencySummary, LatencyWindows, percentile, summaries


@pytest.mark.parametrize(
    ("share", "exact"), [(0.50, Fraction(1, 2)), (0.95, Fraction(19, 20)), (0.99, Fraction(99, 100))]
)
def test_a_percentile_is_the_nearest_rank_for_every_size(share: float, exact: Fraction) -> None:
    for size in range(1, 401):
        ordered = [float(rank) for rank in range(1, size + 1)]
        assert percentile(ordered, share) == math.ceil(size * exact), size


def test_the_whole_share_is_the_largest_and_a_tiny_one_the_smallest() -> None:
    assert percentile([1.0, 2.0, 3.0], 1.0) == 3.0
    assert percentile([1.0, 2.0, 3.0], 1e-9) == 1.0


def test_a_summary_does_not_depend_on_the_order_of_the_samples() -> None:
    samples = [float(value) for value in range(1, 101)]
    random.Random(7).shuffle(samples)
    windows = LatencyWindows()
    for sample in samples:
        windows.record("total", sample)
    assert summaries(windows.samples()) == {"total": LatencySummary(100, 50.0, 95.0, 99.0)}


def test_one_sample_is_every_percentile() -> None:
    windows = LatencyWindows()
    windows.record("total", 12.34567)
    assert summaries(windows.samples()) == {"total": LatencySummary(1, 12.346, 12.346, 12.346)}


def test_series_are_kept_apart() -> None:
    windows = LatencyWindows()
    windows.record("a", 1.0)
    windows.record("b", 2.0)
    assert {name: summary.p50 for name, summary in summaries(windows.samples()).items()} == {
        "a": 1.0,
        "b": 2.0,
    }


def test_a_full_window_forgets_the_oldest_sample() -> None:
    windows = LatencyWindows(samples=3)
    for sample in (1000.0, 1.0, 2.0, 3.0):
        windows.record("total", sample)
    assert summaries(windows.samples()) == {"total": LatencySummary(3, 2.0, 3.0, 3.0)}


def test_nothing_recorded_is_an_empty_summary() -> None:
    assert summaries(LatencyWindows().samples()) == {}
