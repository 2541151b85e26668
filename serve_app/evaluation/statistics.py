"""How much worse a candidate is than a baseline, from pairs of measurements of the same cases.

A *loss* is positive where the candidate is worse: of scores it is baseline minus candidate, of times the
logarithm of candidate over baseline, so that every quantity is judged in one way.

Two means, because each covers what the other cannot:

- The **paired bootstrap** (Efron 1979) gives intervals. With scores of 0 and 1 and few cases that differ it
  is far too sure: of thirty equal pairs every resample is the same. So the upper end is taken with one more
  case that the candidate lost in full; without any difference it is then 3 / n, near the exact bound.
- The **randomization test** (Fisher 1935) gives the chance of a loss as large if both were the same. Which of
  the two is asked first is drawn for each pair, so it is exact whatever the noise is: drift, bursts, noise
  that lasts longer than a pair, answers that come out of the same cache the second time. Of scores of 0 and 1
  it is the sign test of the cases that differ, and no unbiased test finds more.

Several times of the same requests are tested together (Westfall and Young 1993): every draw of the order
gives all of them, so that times that move together cost hardly more than one.

Times are compared by the midmean (the mean of the middle half) of the logarithms of their ratios: a burst of
noise on a shared machine is not in it, and it needs fewer pairs than the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05
"""Level of all one-sided tests of a run together: how often it may call a target worse than itself."""

TAIL = 0.025
"""Beyond either end of an interval, whose confidence is 95 %."""

RESAMPLES = 4000
CHUNK = 2_000_000
"""Values of resamples in memory at once: 16 MB."""

OUTER_SHARE = 0.25
"""Share of the values at either end that the midmean leaves out."""

POWER = 0.8
"""The share of comparisons that are to decide."""

NORMAL = NormalDist()

LEAST_EACH = 2
"""Pairs of either order, so that the order can be drawn again."""

Values = NDArray[np.float64]
Numbers = Sequence[float] | Values
Statistic = Callable[[Values], Values]
"""One value of each row."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its interval of 95 %."""

    estimate: float
    low: float
    high: float

    def mapped(self, change: Callable[[float], float]) -> Interval:
        """``change`` rises or falls throughout."""
        ends = change(self.low), change(self.high)
        return Interval(change(self.estimate), min(ends), max(ends))


@dataclass(frozen=True, slots=True)
class Loss:
    """``chance``: of a loss at least as large if candidate and baseline were the same, one-sided.
    ``error``: the standard error of the estimate. ``count``: pairs."""

    interval: Interval
    chance: float
    error: float
    count: int

    def needed(self, margin: float, level: float = LEVEL) -> int:
        """Pairs after which four of five comparisons decide, if the loss stays as it is: that it is above 0
        by a test of that ``level``, or that it is below ``margin``, whichever takes fewer."""
        estimate = self.interval.estimate
        share = max(estimate / _sigmas(level), (margin - estimate) / _sigmas(TAIL))
        return max(math.ceil(self.count * (self.error / share) ** 2), self.count + 1)


def loss_of_scores(baseline: Sequence[float], candidate: Sequence[float], seed: int = 0) -> Loss:
    """The loss of the mean score. One score of 0 to 1 for each case, the same cases on both sides; of several
    answers to one case their mean, because they are not independent.

    Raises:
        ValueError: there are no cases, or not equally many.
    """
    losses = _array(baseline) - _array(candidate)
    rng = np.random.default_rng(seed)
    means = resampled(losses, mean, rng)
    cautious = resampled(np.append(losses, 1.0), mean, rng)
    interval = Interval(
        float(losses.mean()), float(np.quantile(means, TAIL)), float(np.quantile(cautious, 1 - TAIL))
    )
    return Loss(interval, _flipped_chance(losses, mean, rng), float(cautious.std()), len(losses))


def loss_of_groups(baseline: Numbers, candidate: Numbers, seed: int = 0) -> Loss:
    """The loss of the mean score of two groups, each of other sessions, which a hash has divided. ``count``:
    of the smaller group.

    Raises:
        ValueError: a group is empty.
    """
    one, two = _array(baseline), _array(candidate)
    rng = np.random.default_rng(seed)
    draws = resampled(one, mean, rng) - resampled(two, mean, rng)
    cautious = resampled(one, mean, rng) - resampled(np.append(two, 0.0), mean, rng)
    estimate = float(one.mean() - two.mean())
    ends = float(np.quantile(draws, TAIL)), float(np.quantile(cautious, 1 - TAIL))
    chance = _regrouped_chance(one, two, rng)
    return Loss(Interval(estimate, *ends), chance, float(cautious.std()), min(len(one), len(two)))


def loss_of_times(
    baseline: Numbers, candidate: Numbers, is_second: Sequence[bool] | NDArray[np.bool_], seed: int = 0
) -> Loss:
    """The logarithm of how many times longer the candidate takes. Seconds, above 0; ``is_second``: whether
    the candidate was asked second in that pair. What the place in the pair does (the second finds warm
    caches) is in both groups of pairs and cancels.

    Raises:
        ValueError: there are no pairs, or not equally many values.
    """
    ratios = np.log(_array(candidate)) - np.log(_array(baseline))
    second = np.asarray(is_second, dtype=bool)
    rng = np.random.default_rng(seed)
    if min(second.sum(), (~second).sum()) < LEAST_EACH:
        draws = resampled(ratios, midmean, rng)
        return _loss(float(midmean(ratios)), draws, _flipped_chance(ratios, midmean, rng), len(ratios))
    later, sooner = ratios[second], -ratios[~second]  # both: the second of a pair over its first
    estimate = float(midmean(later) - midmean(sooner)) / 2
    draws = (resampled(later, midmean, rng) - resampled(sooner, midmean, rng)) / 2
    return _loss(estimate, draws, _shuffled_chance(later, sooner, rng), len(ratios))


def losses_of_times(
    times: Mapping[str, tuple[Sequence[float], Sequence[float]]], is_second: Sequence[bool], seed: int = 0
) -> dict[str, Loss]:
    """``loss_of_times`` of several times of the same pairs, each of baseline and candidate; NaN where a pair
    lacks one. Their chances are corrected for being several. A time that no pair has is left out."""
    second = np.asarray(is_second, dtype=bool)
    sides = {name: (_array(one), _array(two)) for name, (one, two) in times.items() if len(one)}
    has = {name: ~np.isnan(one + two) for name, (one, two) in sides.items()}
    losses = {
        name: loss_of_times(one[has[name]], two[has[name]], second[has[name]], seed)
        for name, (one, two) in sides.items()
        if has[name].any()
    }
    several = [
        name for name in losses if min(second[has[name]].sum(), (~second)[has[name]].sum()) >= LEAST_EACH
    ]
    if len(several) < len(losses) or not losses:
        chances = holm({name: loss.chance for name, loss in losses.items()})
    else:
        ratios = np.array([np.log(sides[name][1]) - np.log(sides[name][0]) for name in several])
        values = np.where(second, ratios, -ratios)
        chances = _joint_chances(several, values, second, np.random.default_rng(seed))
    return {name: replace(loss, chance=chances[name]) for name, loss in losses.items()}


def ratio_of_means(baseline: Sequence[float], candidate: Sequence[float], seed: int = 0) -> Interval:
    """Mean of the candidate over mean of the baseline, of pairs. NaN where the baseline has none.

    Raises:
        ValueError: there are no pairs, or not equally many values.
    """
    one, two = _array(baseline), _array(candidate)
    if not one.sum():
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    draws = np.concatenate([two[rows].sum(-1) / one[rows].sum(-1) for rows in _rows(len(one), rng)])
    return _interval(float(two.sum() / one.sum()), draws[np.isfinite(draws)])


def interval_of(values: Sequence[float], statistic: Statistic, seed: int = 0) -> Interval:
    """A statistic of one sample, with its interval by the bootstrap; NaN of no values."""
    if not len(values):
        return Interval(math.nan, math.nan, math.nan)
    array = _array(values)
    return _interval(float(statistic(array)), resampled(array, statistic, np.random.default_rng(seed)))


def mean(values: Values) -> Values:
    means: Values = values.mean(axis=-1)
    return means


def median(values: Values) -> Values:
    medians: Values = np.median(values, axis=-1)
    return medians


def midmean(values: Values) -> Values:
    """The mean of the middle half of each row."""
    count = values.shape[-1]
    outer = int(count * OUTER_SHARE)
    ordered = np.sort(values, axis=-1)
    middle: Values = ordered[..., outer : count - outer].mean(axis=-1)
    return middle


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Each chance corrected for the number of tests: the chance that any of them would be as small without a
    cause (Holm 1979)."""
    adjusted: dict[str, float] = {}
    least = 0.0
    for position, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, (len(chances) - position) * chance))
        adjusted[name] = least
    return adjusted


def resampled(values: Values, statistic: Statistic, rng: np.random.Generator) -> Values:
    """``statistic`` of ``RESAMPLES`` samples of ``values``, each drawn with replacement."""
    return np.concatenate([statistic(values[rows]) for rows in _rows(len(values), rng)])


def _rows(count: int, rng: np.random.Generator) -> Iterator[Any]:
    for height in _heights(count):
        yield rng.integers(0, count, (height, count))


def _heights(count: int) -> Iterator[int]:
    """How many resamples of ``count`` values are made at once."""
    left = RESAMPLES
    while left:
        height = min(left, max(1, CHUNK // count))
        yield height
        left -= height


def _flipped_chance(losses: Values, statistic: Statistic, rng: np.random.Generator) -> float:
    """The chance by random signs: without a difference each pair could as well be the other way round."""
    observed = float(statistic(losses)) - 1e-12
    as_large = 0
    for height in _heights(len(losses)):
        signs = rng.integers(0, 2, (height, len(losses)), dtype=np.int8) * 2.0 - 1.0
        as_large += int(np.sum(statistic(signs * losses) >= observed))
    # The observed order is one of the possible ones: the chance is never 0.
    return (1 + as_large) / (1 + RESAMPLES)


def _regrouped_chance(one: Values, two: Values, rng: np.random.Generator) -> float:
    """The chance by drawing again who is in which group."""
    together = np.concatenate([one, two])
    observed = float(two.sum()) + 1e-12
    as_small = 0
    for height in _heights(len(together)):
        drawn = rng.permuted(np.broadcast_to(together, (height, len(together))), axis=1)
        as_small += int(np.sum(drawn[:, : len(two)].sum(axis=-1) <= observed))
    return (1 + as_small) / (1 + RESAMPLES)


def _shuffled_chance(later: Values, sooner: Values, rng: np.random.Generator) -> float:
    """The chance by drawing again in which pairs the candidate was second."""
    observed = float(midmean(later) - midmean(sooner)) - 1e-12
    together = np.concatenate([later, sooner])
    as_large = 0
    for height in _heights(len(together)):
        drawn = rng.permuted(np.broadcast_to(together, (height, len(together))), axis=1)
        as_large += int(np.sum(midmean(drawn[:, : len(later)]) - midmean(drawn[:, len(later) :]) >= observed))
    return (1 + as_large) / (1 + RESAMPLES)


def _joint_chances(
    names: Sequence[str], values: Values, second: NDArray[np.bool_], rng: np.random.Generator
) -> dict[str, float]:
    """One row of ``values`` for each name: of each pair the logarithm of its second request over its first,
    or NaN. Pairs that have the same times change places with one another only, so that as many as before
    stand on either side."""
    _, kinds = np.unique(np.isnan(values), axis=1, return_inverse=True)
    groups = [np.flatnonzero(kinds.ravel() == kind) for kind in range(int(kinds.max()) + 1)]
    drawn = [_differences(values, [(group[second[group]], group[~second[group]]) for group in groups])]
    for height in _heights(len(second)):
        places = []
        for group in groups:
            shuffled = rng.permuted(np.broadcast_to(group, (height, len(group))), axis=1)
            later = int(second[group].sum())
            places.append((shuffled[:, :later], shuffled[:, later:]))
        drawn.append(_differences(values, places))
    return _stepped_down(names, np.concatenate(drawn, axis=-1))


def _differences(values: Values, groups: Sequence[tuple[Any, Any]]) -> Values:
    """For each row and draw: the midmean of the pairs whose second request is the candidate's less that of
    the others. ``groups``: places of both kinds, one draw in each row; all pairs of a group have the same
    times."""
    found = []
    for row in values:
        kept = [both for both in groups if not any(np.isnan(row[side]).any() for side in both)]
        later, sooner = (np.concatenate([each[side] for each in kept], axis=-1) for side in (0, 1))
        found.append(np.atleast_1d(midmean(row[later]) - midmean(row[sooner])))
    return np.array(found)


def _stepped_down(names: Sequence[str], drawn: Values) -> dict[str, float]:
    """The chance that the least of several chances is as small without a cause. ``drawn``: a row for each
    name, whose first value is the observed one."""
    count = drawn.shape[1]
    chances = np.array([(count - np.searchsorted(np.sort(row), row - 1e-12)) / count for row in drawn])
    order = np.argsort(chances[:, 0], kind="stable")
    found: dict[str, float] = {}
    least = 0.0
    for position, row in enumerate(order):
        smallest = chances[order[position:]].min(axis=0)
        least = max(least, float(np.mean(smallest <= chances[row, 0])))
        found[names[row]] = least
    return found


def _sigmas(level: float) -> float:
    """Standard errors between an effect and a bound, so that a test of that level finds it with ``POWER``."""
    return NORMAL.inv_cdf(1 - level) + NORMAL.inv_cdf(POWER)


def _loss(estimate: float, draws: Values, chance: float, count: int) -> Loss:
    return Loss(_interval(estimate, draws), chance, float(draws.std()), count)


def _interval(estimate: float, draws: Values) -> Interval:
    low, high = np.quantile(draws, [TAIL, 1 - TAIL])
    return Interval(estimate, float(low), float(high))


def _array(values: Numbers) -> Values:
    """Raises: ValueError: there are none."""
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise ValueError("a comparison needs at least one pair")
    return array
