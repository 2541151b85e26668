"""Hedges come after the model's own quantile, and are never more than their share."""

from __future__ import annotations

import random

import pytest

from serve_app.hedging import ENOUGH, REFRESH, WINDOW, Hedge
from serve_app.latency import percentile


def learned(*ttfts: float, share: float = 0.5, quantile: float = 0.95) -> Hedge:
    hedge = Hedge(share, quantile)
    for ttft in ttfts:
        hedge.saw_first_byte(ttft)
    return hedge


def try_to_hedge(hedge: Hedge) -> bool:
    """One request that would hedge if it may."""
    hedge.begin()
    if hedge.may_hedge():
        hedge.hedged()
        return True
    return False


def test_nothing_is_hedged_before_enough_is_known() -> None:
    hedge = Hedge(0.5)
    for _ in range(ENOUGH):
        assert hedge.begin() is None
        hedge.saw_first_byte(0.1)
    assert hedge.begin() == 0.1


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_it_waits_as_long_as_the_quantile_of_the_first_bytes(quantile: float) -> None:
    ttfts = [float(number) for number in range(1, 2 * ENOUGH + 1)]
    random.Random(2).shuffle(ttfts)
    assert learned(*ttfts, quantile=quantile).begin() == percentile(sorted(ttfts), quantile)


def test_the_quantile_is_made_anew_from_time_to_time() -> None:
    hedge = learned(*[1.0] * ENOUGH, *[9.0] * (REFRESH - 1))
    assert hedge.begin() == 1.0
    hedge.saw_first_byte(9.0)
    assert hedge.begin() == 9.0


def test_old_first_bytes_are_forgotten() -> None:
    assert learned(*[9.0] * WINDOW, *[1.0] * WINDOW).begin() == 1.0


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.1, 0.3, 0.5])
def test_hedges_are_never_more_than_their_share_and_reach_it(share: float) -> None:
    hedge, hedges = Hedge(share), 0
    for requests in range(1, 5001):
        hedges += try_to_hedge(hedge)
        assert hedges <= share * requests
    assert hedges >= share * 5000 - 1


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5])
def test_the_share_holds_whenever_hedges_are_wanted(share: float) -> None:
    choose = random.Random(4)
    hedge, hedges, wanted = Hedge(share), 0, False
    for requests in range(1, 20_001):
        if choose.random() < 0.005:
            wanted = not wanted
        if wanted:
            hedges += try_to_hedge(hedge)
        else:
            hedge.begin()
        assert hedges <= share * requests


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5])
def test_what_a_quiet_time_left_over_does_not_pile_up(share: float) -> None:
    hedge = Hedge(share)
    for _ in range(100_000):
        hedge.begin()
    hedges = sum(try_to_hedge(hedge) for _ in range(WINDOW))
    assert 1 <= hedges <= max(1.0, share * WINDOW) + share * WINDOW


def test_asking_spends_nothing() -> None:
    hedge = Hedge(0.5)
    hedge.begin()
    hedge.begin()
    assert hedge.may_hedge()
    assert hedge.may_hedge()
    hedge.hedged()
    assert not hedge.may_hedge()


def test_a_share_that_is_not_earned_yet_allows_nothing() -> None:
    hedge = Hedge(0.05)
    assert [try_to_hedge(hedge) for _ in range(20)] == [False] * 19 + [True]


def test_silence_beyond_the_quantile_counts_as_a_slow_first_byte() -> None:
    hedge = learned(*[1.0] * ENOUGH)
    for _ in range(REFRESH):
        hedge.saw_silence(4.0)
    assert hedge.begin() == 4.0


def test_silence_that_was_given_up_earlier_says_nothing() -> None:
    hedge = learned(*[1.0] * WINDOW)
    for _ in range(WINDOW):
        hedge.saw_silence(0.999)
    assert hedge.begin() == 1.0


def test_silence_says_nothing_before_enough_is_known() -> None:
    hedge = Hedge(0.5)
    for _ in range(WINDOW):
        hedge.saw_silence(4.0)
    assert hedge.begin() is None


def test_hedging_does_not_lower_the_quantile_it_waits_for() -> None:
    """The attempt that loses is cancelled: were it left out, only the fast ones would be seen."""
    choose = random.Random(6)
    hedge = learned(*(choose.random() for _ in range(WINDOW)), quantile=0.9)
    hedges = 0
    for _ in range(20_000):
        after_s, first, second = hedge.begin(), choose.random(), choose.random()
        assert after_s is not None
        if first <= after_s or not hedge.may_hedge():
            hedge.saw_first_byte(first)
            continue
        hedge.hedged()
        hedges += 1
        if first <= after_s + second:
            hedge.saw_first_byte(first)
            hedge.saw_silence(first - after_s)
        else:
            hedge.saw_first_byte(second)
            hedge.saw_silence(after_s + second)
    assert hedges / 20_000 == pytest.approx(0.1, abs=0.02)
