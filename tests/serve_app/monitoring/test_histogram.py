"""Percentiles are right within a bucket, and histograms merge exactly."""

from __future__ import annotations

import math
import random

import pytest

from serve_app.latency import percentile
from serve_app.monitoring.histogram import Histogram

SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@pytest.mark.parametrize("median_ms", [0.05, 3.0, 400.0, 20_000.0])
def test_a_percentile_is_within_one_percent_of_the_exact_one(median_ms: float) -> None:
    draw = random.Random(7)
    values = [draw.lognormvariate(math.log(median_ms), 1.0) for _ in range(5_000)]
    ordered = sorted(values)
    for share, found in zip(SHARES, of(values).percentiles(*SHARES), strict=True):
        assert found == pytest.approx(percentile(ordered, share), rel=0.0101)


def test_the_mean_and_the_count_are_exact() -> None:
    histogram = of([1.0, 2.0, 6.0])
    assert (histogram.count, histogram.mean) == (3, 3.0)


def test_two_merged_are_the_histogram_of_all_values() -> None:
    one, other = [1.0, 5.0, 9.0], [5.0, 700.0]
    merged = of(one)
    merged.merge(of(other))
    whole = of(one + other)
    assert (merged.buckets, merged.count, merged.total_us) == (whole.buckets, whole.count, whole.total_us)


def test_what_is_taken_away_leaves_nothing_behind() -> None:
    draw = random.Random(3)
    values = [draw.uniform(0.001, 60_000) for _ in range(1_000)]
    kept = of(values)
    kept.merge(of([5.0]))
    kept.take_away(of(values))
    assert (kept.buckets, kept.count, kept.total_us) == (of([5.0]).buckets, 1, 5_000)


def test_an_empty_one_has_zeros() -> None:
    assert (Histogram().mean, Histogram().percentiles(0.5, 0.99)) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_duration_counts_nothing(value: float) -> None:
    assert of([value]).count == 0


@pytest.mark.parametrize("value", [-5.0, 0.0, 1e-9])
def test_a_clock_that_was_set_back_counts_as_the_least_duration(value: float) -> None:
    histogram = of([value])
    assert histogram.count == 1
    assert histogram.percentiles(0.5)[0] < 0.002
