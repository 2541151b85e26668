"""How good a decision is: recall, and wrong hits among hits, in assumed mixes of traffic.

A *mix* says which share of near look-ups are paraphrases, ordinary different questions, and hard negatives. A
list of pairs has its own shares, so each group's rate is measured alone and then weighted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cache_lab.pairs import GROUPS, LabelledPair
from serve_app.cache.bound.population import wilson_lower, wilson_upper

MIXES: Mapping[str, Mapping[str, float]] = {
    "traffic 30/65/5": {"para": 0.30, "diff": 0.65, "hard": 0.05},
    "traffic 30/55/15": {"para": 0.30, "diff": 0.55, "hard": 0.15},
}
"""Shares of each group. They are assumed, not measured."""

TRAFFIC = "traffic 30/65/5"
AS_IT_IS = "as the file is"
"""The mix with the shares that the file has."""

Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Interval:
    """A share and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Hits and pairs of each group."""

    hits: Mapping[str, int]
    pairs: Mapping[str, int]

    def rate(self, group: str) -> float:
        return self.hits[group] / self.pairs[group] if self.pairs[group] else 0.0

    def recall(self) -> Interval:
        return wilson(self.hits["para"], self.pairs["para"])

    def shares(self, mix: str) -> Mapping[str, float]:
        if mix != AS_IT_IS:
            return MIXES[mix]
        total = sum(self.pairs.values())
        return {group: count / total for group, count in self.pairs.items()}

    def false_share(self, mix: str) -> Interval:
        """Wrong hits among all hits; 0 without hits. The interval combines the bounds of all groups, so it is
        wider than 95 %."""
        shares = self.shares(mix)
        bounds = {group: wilson(self.hits[group], self.pairs[group]) for group in GROUPS}

        def share(wrong: Mapping[str, float], right: float) -> float:
            false = sum(shares[group] * wrong[group] for group in ("diff", "hard"))
            true = shares["para"] * right
            return false / (false + true) if false + true else 0.0

        values = {group: self.rate(group) for group in GROUPS}
        return Interval(
            share(values, values["para"]),
            share({group: bound.low for group, bound in bounds.items()}, bounds["para"].high),
            share({group: bound.high for group, bound in bounds.items()}, bounds["para"].low),
        )


def rates(pairs: Sequence[LabelledPair], hits: Iterable[bool]) -> Rates:
    counted = dict.fromkeys(GROUPS, 0)
    total = dict.fromkeys(GROUPS, 0)
    for pair, hit in zip(pairs, hits, strict=True):
        total[pair.group] += 1
        counted[pair.group] += hit
    return Rates(counted, total)


def wilson(successes: int, trials: int) -> Interval:
    """The 95 % score interval of a share (Wilson 1927); 0 to 1 without trials."""
    if trials == 0:
        return Interval(0.0, 0.0, 1.0)
    return Interval(
        successes / trials, wilson_lower(successes, trials, Z_95), wilson_upper(successes, trials, Z_95)
    )
