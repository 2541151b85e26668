"""Losses and verdicts on made-up measurements, of distributions unlike those of the benchmark."""

from __future__ import annotations

import math

import numpy as np
import pytest

from serve_app.evaluation.statistics import (
    LEVEL,
    holm,
    interval_of,
    loss_of_scores,
    loss_of_times,
    losses_of_times,
    mean,
    midmean,
    ratio_of_means,
)
from serve_app.evaluation.verdict import LEAST_PAIRS, Verdict, judge_scores, judge_times, together

COMPARISONS = 60


def scores(rng: np.random.Generator, cases: int, loss: float = 0.0) -> tuple[list[float], list[float]]:
    """Single answers right or wrong; some cases are always right, some never. ``loss``: of the candidate."""
    ease = rng.beta(0.3, 0.2, cases)
    one = rng.random(cases) < ease
    two = (rng.random(cases) < ease) & (rng.random(cases) >= loss)
    return [float(value) for value in one], [float(value) for value in two]


def noise(rng: np.random.Generator, kind: str, pairs: int) -> np.ndarray:
    """The logarithms of two times of each pair."""
    white = rng.normal(size=(pairs, 2)) * 0.1
    if kind == "drift":
        return white + np.linspace(0, 1, 2 * pairs).reshape(pairs, 2)
    if kind == "second is faster":
        return white - np.array([0.0, 0.5])
    if kind == "slow waves":
        return white + 0.5 * np.sin(np.arange(2 * pairs) / 5).reshape(pairs, 2)
    bursts = rng.random((pairs, 2)) < 0.1
    return white + bursts * rng.exponential(1.0, (pairs, 2))


def times(
    rng: np.random.Generator, kind: str, pairs: int, factor: float = 1.0
) -> tuple[list[float], list[float], list[bool]]:
    """``factor``: how many times longer the candidate takes."""
    both = np.exp(noise(rng, kind, pairs))
    second = rng.permutation(np.arange(pairs) % 2 == 0)
    baseline = np.where(second, both[:, 0], both[:, 1])
    candidate = factor * np.where(second, both[:, 1], both[:, 0])
    return list(baseline), list(candidate), [bool(value) for value in second]


def test_a_target_against_itself_is_hardly_ever_worse() -> None:
    rng = np.random.default_rng(11)
    found = [judge_scores(loss_of_scores(*scores(rng, 80), seed)).verdict for seed in range(COMPARISONS)]
    assert found.count(Verdict.WORSE) <= 0.05 * COMPARISONS


def test_a_large_loss_is_found_and_is_never_called_none() -> None:
    rng = np.random.default_rng(12)
    found = [judge_scores(loss_of_scores(*scores(rng, 300, 0.25), seed)).verdict for seed in range(20)]
    assert found.count(Verdict.WORSE) >= 16
    assert Verdict.NOT_WORSE not in found


@pytest.mark.parametrize(
    ("cases", "verdict"), [(10, Verdict.UNDECIDED), (90, Verdict.UNDECIDED), (130, Verdict.NOT_WORSE)]
)
def test_equal_scores_show_little_if_there_are_few(cases: int, verdict: Verdict) -> None:
    """A rare loss may hide: of ``n`` equal pairs only a loss of more than about 3 / n is ruled out."""
    judged = judge_scores(loss_of_scores([1.0] * cases, [1.0] * cases))
    assert judged.verdict == verdict
    assert (judged.needed or math.inf) > cases


def test_four_lost_cases_may_be_chance_and_ten_are_not() -> None:
    def judged(lost: int) -> Verdict:
        return judge_scores(loss_of_scores([1.0] * 100, [0.0] * lost + [1.0] * (100 - lost))).verdict

    assert judged(4) == Verdict.UNDECIDED
    assert judged(10) == Verdict.WORSE


def test_what_would_decide_decides() -> None:
    one, two = [1.0, 0.0, 1.0, 1.0] * 25, [1.0, 1.0, 0.0, 1.0] * 25
    judged = judge_scores(loss_of_scores(one, two))
    assert judged.verdict == Verdict.UNDECIDED
    assert judged.needed is not None
    more = math.ceil(judged.needed / len(one))
    assert judge_scores(loss_of_scores(one * more, two * more)).verdict == Verdict.NOT_WORSE


@pytest.mark.parametrize("kind", ["drift", "second is faster", "slow waves", "bursts"])
def test_noise_of_a_machine_is_no_loss(kind: str) -> None:
    rng = np.random.default_rng(15)
    found = [
        judge_times({"ttft": loss_of_times(*times(rng, kind, 40), seed)}, level=LEVEL / 2)["ttft"].verdict
        for seed in range(2 * COMPARISONS)
    ]
    assert found.count(Verdict.WORSE) <= 0.05 * 2 * COMPARISONS


@pytest.mark.parametrize("kind", ["drift", "second is faster", "slow waves", "bursts"])
def test_a_tenth_more_time_is_found_in_noise(kind: str) -> None:
    rng = np.random.default_rng(14)
    losses = [loss_of_times(*times(rng, kind, 100, 1.1), seed) for seed in range(20)]
    found = [judge_times({"ttft": loss})["ttft"].verdict for loss in losses]
    assert found.count(Verdict.WORSE) >= 16
    assert float(np.median([math.exp(loss.interval.estimate) for loss in losses])) == pytest.approx(
        1.1, abs=0.03
    )


def test_few_pairs_of_times_decide_nothing() -> None:
    pairs = LEAST_PAIRS - 1
    judged = judge_times({"e2e": loss_of_times([1.0] * pairs, [2.0] * pairs, [True] * pairs)})["e2e"]
    assert (judged.verdict, judged.needed) == (Verdict.UNDECIDED, LEAST_PAIRS)


def test_several_times_are_corrected_for_their_number() -> None:
    rng = np.random.default_rng(3)
    given = {name: times(rng, "bursts", 40, 1.05) for name in "abc"}
    second = given["a"][2]
    alone = {name: loss_of_times(one, two, second) for name, (one, two, _) in given.items()}
    together = losses_of_times({name: (one, two) for name, (one, two, _) in given.items()}, second)
    corrected = holm({name: loss.chance for name, loss in alone.items()})
    for name, loss in together.items():
        assert alone[name].chance <= loss.chance <= corrected[name] + 0.03
        assert loss.interval == alone[name].interval
    assert any(loss.chance > alone[name].chance for name, loss in together.items())


def test_times_that_move_together_count_as_one() -> None:
    rng = np.random.default_rng(4)
    one, two, second = times(rng, "bursts", 60, 1.04)
    alone = loss_of_times(one, two, second).chance
    twice = losses_of_times({"ttft": (one, two), "e2e": (one, two)}, second)
    assert twice["ttft"].chance == twice["e2e"].chance == pytest.approx(alone, abs=0.01)
    assert 0.001 < alone < 0.2


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_pairs_that_lack_a_time_are_left_out_of_that_time_only(factor: float) -> None:
    """Answers of one token have no time between tokens."""
    rng = np.random.default_rng(5)
    one, two, second = times(rng, "second is faster", 60, factor)
    lacks = [number % 3 == 0 for number in range(60)]
    itl = tuple(
        [math.nan if no else value for value, no in zip(side, lacks, strict=True)] for side in (one, two)
    )
    found = losses_of_times({"ttft": (one, two), "itl": itl, "none": ([math.nan] * 60,) * 2}, second)
    assert {name: loss.count for name, loss in found.items()} == {"ttft": 60, "itl": 40}
    worse = {name for name, each in judge_times(found).items() if each.verdict == Verdict.WORSE}
    assert worse == ({"ttft", "itl"} if factor > 1 else set())


@pytest.mark.parametrize("seconds", [0, 1])
def test_without_both_orders_the_signs_are_drawn(seconds: int) -> None:
    second = [True] * seconds + [False] * (30 - seconds)
    rng = np.random.default_rng(6)
    one = list(1 + rng.random(30))
    found = losses_of_times({"ttft": (one, [2 * value for value in one])}, second)
    assert judge_times(found)["ttft"].verdict == Verdict.WORSE


def test_a_target_against_itself_is_worse_in_none_of_its_times() -> None:
    """In at most the level's share of the runs, though there are three."""
    rng = np.random.default_rng(7)
    alarms = 0
    for seed in range(2 * COMPARISONS):
        given = {name: times(rng, "bursts", 40) for name in ("ttft", "itl", "e2e")}
        second = given["ttft"][2]
        for name in ("itl", "e2e"):  # each draw of the order is one for all
            order = np.asarray(second) == np.asarray(given[name][2])
            one, two, _ = given[name]
            given[name] = (list(np.where(order, one, two)), list(np.where(order, two, one)), second)
        losses = losses_of_times({name: (one, two) for name, (one, two, _) in given.items()}, second, seed)
        alarms += any(each.verdict == Verdict.WORSE for each in judge_times(losses).values())
    assert alarms <= 0.1 * 2 * COMPARISONS


def test_cases_that_differ_are_judged_as_the_sign_test_does() -> None:
    """Which is the most that can be found of scores of 0 and 1."""
    for lost, won in ((7, 1), (15, 6), (30, 18), (40, 30)):
        one = [1.0] * lost + [0.0] * won + [1.0] * 100
        two = [0.0] * lost + [1.0] * won + [1.0] * 100
        count = lost + won
        exact = sum(math.comb(count, number) for number in range(lost, count + 1)) / 2**count
        assert loss_of_scores(one, two).chance == pytest.approx(exact, abs=0.02)


def test_one_worse_figure_makes_the_whole_worse_and_one_open_one_leaves_it_open() -> None:
    worse, fine, open_ = Verdict.WORSE, Verdict.NOT_WORSE, Verdict.UNDECIDED
    assert together([fine, open_, worse]) == worse
    assert together([fine, open_]) == open_
    assert together([fine, fine]) == together([]) == fine


def test_holm_multiplies_the_smallest_by_the_number_of_tests() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_the_same_seed_gives_the_same_figures() -> None:
    one, two = scores(np.random.default_rng(1), 50)
    assert loss_of_scores(one, two, 7) == loss_of_scores(one, two, 7)
    assert loss_of_scores(one, two, 7) != loss_of_scores(one, two, 8)


def test_intervals_hold_the_estimate() -> None:
    rng = np.random.default_rng(2)
    one, two = rng.random(40) + 1, 2 * (rng.random(40) + 1)
    ratio = ratio_of_means(one, two)
    assert ratio.low < ratio.estimate < ratio.high
    assert ratio.estimate == pytest.approx(two.mean() / one.mean())
    assert interval_of(one, mean).estimate == pytest.approx(one.mean())
    assert math.isnan(interval_of([], mean).estimate)
    assert math.isnan(ratio_of_means([0.0], [1.0]).estimate)
    assert midmean(np.array([100.0, 2.0, 4.0, -50.0])) == 3.0
    assert 0 < LEVEL <= 0.05


def test_no_pairs_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        loss_of_scores([], [])
