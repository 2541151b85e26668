"""Traffic is remembered as long as the window and in bins; a trend goes on, a burst has none."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from serve_app.autoscaling import Arrivals


def steady(arrivals: Arrivals, per_second: float, since: int, until: int, tokens: float = 100.0) -> None:
    for second in range(since, until):
        arrivals.add(per_second, per_second * tokens, float(second))


def test_the_window_holds_what_came_within_it_and_forgets_the_rest() -> None:
    arrivals = Arrivals(60.0)
    steady(arrivals, 2, 0, 300)
    assert arrivals.requests == pytest.approx(2 * 61)
    assert sum(bin_.requests for bin_ in arrivals.bins) == pytest.approx(arrivals.requests)
    arrivals.add(0, 0, 1000.0)
    assert arrivals.requests == pytest.approx(0.0)


def test_looks_that_follow_each_other_fast_share_a_bin() -> None:
    arrivals = Arrivals(60.0)
    for tenth in range(601):
        arrivals.add(1, 10, tenth / 10)
    assert len(arrivals.bins) <= 70
    assert sum(bin_.tokens for bin_ in arrivals.bins) == pytest.approx(6010)


def test_an_idle_hour_is_one_bin() -> None:
    arrivals = Arrivals(7200.0)
    arrivals.add(1, 10, 0.0)
    steady(arrivals, 0, 1, 3600)
    assert len(arrivals.bins) == 2
    assert arrivals.bins[-1].seconds == pytest.approx(3598)


def test_bins_cover_the_time_without_gap_or_overlap() -> None:
    choose, arrivals, now = random.Random(1), Arrivals(1e9), 0.0
    for _ in range(2000):
        now += choose.choice([0.05, 0.3, 1.0, 7.0])
        arrivals.add(choose.choice([0, 0, 3]), 5, now)
    bins = list(arrivals.bins)
    for before, after in pairwise(bins):
        assert after.end - after.seconds == pytest.approx(before.end)


def test_a_steady_rate_is_forecast_as_it_is() -> None:
    arrivals = Arrivals(600.0)
    steady(arrivals, 3, 0, 200)
    forecast = arrivals.forecast(199.0, 60.0)
    assert (forecast.requests, forecast.tokens) == pytest.approx((3.0, 300.0))


def test_growth_goes_on_for_one_lead_time() -> None:
    arrivals = Arrivals(600.0)
    steady(arrivals, 3, 0, 181)
    steady(arrivals, 4, 181, 241)
    assert arrivals.forecast(240.0, 60.0).requests == pytest.approx(5.0)


def test_a_burst_from_nothing_is_expected_to_double_at_most() -> None:
    arrivals = Arrivals(600.0)
    steady(arrivals, 0, 0, 200)
    steady(arrivals, 60, 200, 210)
    assert arrivals.forecast(209.0, 60.0).requests == pytest.approx(2 * 600 / 60)


def test_a_decline_is_not_extrapolated() -> None:
    arrivals = Arrivals(600.0)
    steady(arrivals, 8, 0, 61)
    steady(arrivals, 2, 61, 121)
    assert arrivals.forecast(120.0, 60.0).requests == pytest.approx(2.0)


def test_requests_that_come_one_by_one_are_independent_and_bursts_are_not() -> None:
    one_by_one, bursts = Arrivals(600.0), Arrivals(600.0)
    steady(one_by_one, 1, 0, 600)
    for second in range(600):
        bursts.add(100 * (second % 100 == 0), 0, float(second))
    assert one_by_one.requests == pytest.approx(bursts.requests)
    assert one_by_one.independent == pytest.approx(600, rel=0.01)
    assert bursts.independent == pytest.approx(6, rel=0.05)


def test_nothing_seen_is_worth_nothing_and_a_first_burst_is_one() -> None:
    arrivals = Arrivals(600.0)
    assert arrivals.independent == 0.0
    arrivals.add(60, 600, 1.0)
    assert arrivals.independent == pytest.approx(1.0, rel=0.05)
