"""How often a near entry's answer is wrong at each score, learned from all entries together."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve_app.cache.bound.evidence import EntryEvidence, Observation

BUCKETS = 32
LOW_LOGIT, HIGH_LOGIT = -4.0, 8.0
"""Scores from 0.018 to 0.9997; a score outside counts as the nearest of them."""

EDGES = tuple(
    1 / (1 + math.exp(-LOW_LOGIT - (HIGH_LOGIT - LOW_LOGIT) * step / BUCKETS)) for step in range(1, BUCKETS)
)
"""The lowest score of every bucket but the first, at equal steps of ln(s / (1 - s)): cosines are dense below
1 and a verifier's probabilities at both ends, and on this scale equal steps mean about the same for both."""

BUCKET_MEMORY = 256.0
"""Observations that one bucket remembers; older ones fade, so that the curve follows changes."""

MEMORY = 4000.0
"""Observations, at any score, over which a bucket forgets what is not observed again."""

TRUST_IN_RECORD = 0.5
"""Weight of the verifier's record on labelled pairs, because traffic differs from them."""

REPEAT_MEMORY = 1024.0
SPREAD_MEMORY = 2000.0

PRIOR_K, PRIOR_PAIRS = 10.0, 20.0
"""Before the first observation, entries are assumed to differ by a factor of 1 ± 0.3."""

SUMS = ("repeats", "alarms", "spread", "expected_pairs")

Z = 1.2816
"""One-sided 90 %."""

Z_OF_CURVE = 0.6745
"""One-sided 75 %. What must hold is the mean of the bounds over all reuses, whose errors average out, and
which audits correct. At 90 % the shipped verifier's record allowed no reuse at 2 % before some dozens of
comparisons; by then most texts had been asked for the first time, and had entries of their own."""


def wilson_upper(wrong: float, count: float, z: float = Z) -> float:
    """Upper end of Wilson's score interval for a share of ``wrong`` among ``count`` (E. B. Wilson, 1927;
    recommended for small counts by Brown, Cai & DasGupta, "Interval estimation for a binomial proportion",
    2001). Unlike Clopper & Pearson's it has a closed form and takes faded, fractional counts. It is 1 without
    observations.
    """
    if count <= 0:
        return 1.0
    share, z2 = wrong / count, z * z
    spread = z * math.sqrt(max(0.0, share * (1 - share) / count) + z2 / (4 * count * count))
    return min(1.0, (share + z2 / (2 * count) + spread) / (1 + z2 / count))


def wilson_lower(wrong: float, count: float, z: float = Z) -> float:
    """Lower end of the same interval; 0 without observations."""
    return 1.0 - wilson_upper(count - wrong, count, z)


def bucket_of(score: float) -> int:
    """The bucket of a score; NaN counts as the lowest score."""
    return bisect_right(EDGES, score) if score >= EDGES[0] else 0


@dataclass(frozen=True, slots=True)
class Curve:
    """Two numbers per bucket, neither of which rises with the score: the mean share of answers that
    comparisons called wrong, and the upper bound of the true share. Both are 1 without observations."""

    means: tuple[float, ...]
    bounds: tuple[float, ...]


@dataclass(slots=True)
class PopulationEvidence:
    """Faded counts of right and wrong answers by score, of false alarms, and of how entries differ.

    A *repeat* is a fresh answer to the same text: the cached answer is right for it by definition, so the
    share of repeats that the comparison calls wrong is its noise.

    It is one class because its counts fade, are merged and are saved together.
    """

    right: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    wrong: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    repeats: float = 0.0
    alarms: float = 0.0
    spread: float = 0.0
    expected_pairs: float = 0.0
    _curve: Curve | None = field(default=None, compare=False, repr=False)

    @classmethod
    def expecting(cls, record: Sequence[tuple[float, float, float]]) -> PopulationEvidence:
        """The expectation before any observation, from a verifier's record: (lowest score, hits, wrong hits),
        in order. A range's counts are spread over its buckets, at half their weight, because the record is
        from other texts."""
        expected = cls()
        starts = [bucket_of(least) for least, _, _ in record] + [BUCKETS]
        for (_, hits, wrong), start, end in zip(record, starts, starts[1:], strict=False):
            share = TRUST_IN_RECORD / max(1, end - start)
            for bucket in range(start, end):
                expected.right[bucket] = (hits - wrong) * share
                expected.wrong[bucket] = wrong * share
        return expected

    def observe(self, score: float, right: bool, entry: EntryEvidence) -> None:
        """Record a comparison; ``entry`` is the entry's evidence before it."""
        self._compare_entries(score, right, entry)
        self._fade()
        bucket = bucket_of(score)
        kept = 1.0 - 1.0 / BUCKET_MEMORY
        self.right[bucket] = self.right[bucket] * kept + right
        self.wrong[bucket] = self.wrong[bucket] * kept + (not right)
        self._curve = None

    def observe_repeat(self, right: bool) -> None:
        kept = 1.0 - 1.0 / REPEAT_MEMORY
        self.repeats = self.repeats * kept + 1.0
        self.alarms = self.alarms * kept + (not right)
        self._curve = None

    @property
    def false_alarm(self) -> float:
        """Share of right answers that the comparison calls wrong: the lower end of the repeats' interval, so
        that noise is rather under- than overestimated."""
        return wilson_lower(self.alarms, self.repeats)

    def count(self, score: float) -> float:
        bucket = bucket_of(score)
        return self.right[bucket] + self.wrong[bucket]

    @property
    def concentration(self) -> float:
        """``k`` of the entries' factors, Gamma(k, k): the higher, the less entries differ. 1 / k is the
        factors' variance, estimated by moments: the product of two observations' deviations from the curve,
        for one entry, over the product of what the curve expects."""
        variance = (max(0.0, self.spread) + PRIOR_PAIRS / PRIOR_K) / (self.expected_pairs + PRIOR_PAIRS)
        return 1.0 / variance

    def account(self, observations: Iterable[Observation], truth: float = 1.0) -> tuple[float, float]:
        """(wrong answers, wrong answers that the curve expects) among an entry's observations; ``truth`` is
        the probability that an answer called wrong is wrong. Reports are not discounted."""
        means = self.curve.means
        wrong = expected = 0.0
        for seen in observations:
            expected += seen.weight * means[bucket_of(seen.score)]
            if not seen.right:
                wrong += seen.weight if seen.weight > 1.0 else truth
        return wrong, expected

    @property
    def curve(self) -> Curve:
        """The current curve; fitting one takes about 40 µs."""
        if self._curve is None:
            self._curve = fitted(self.right, self.wrong, self.false_alarm)
        return self._curve

    def error(self, score: float) -> float:
        """Upper bound of the share of wrong answers at this score; 1 without observations."""
        return self.curve.bounds[bucket_of(score)]

    def mean(self, score: float) -> float:
        """The share of answers at this score that comparisons called wrong; 1 without observations."""
        return self.curve.means[bucket_of(score)]

    def merged(self, other: PopulationEvidence) -> PopulationEvidence:
        """The sum of two counts, which must not have observations in common."""
        return PopulationEvidence(
            [ours + theirs for ours, theirs in zip(self.right, other.right, strict=True)],
            [ours + theirs for ours, theirs in zip(self.wrong, other.wrong, strict=True)],
            repeats=self.repeats + other.repeats,
            alarms=self.alarms + other.alarms,
            spread=self.spread + other.spread,
            expected_pairs=self.expected_pairs + other.expected_pairs,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; ``from_dict`` reads it back, with counts to three digits."""
        right, wrong = ([round(count, 3) for count in counts] for counts in (self.right, self.wrong))
        return {"right": right, "wrong": wrong} | {name: round(getattr(self, name), 3) for name in SUMS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PopulationEvidence:
        """
        Raises:
            ValueError: ``data`` was not made by ``to_dict``.
        """
        try:
            right, wrong = ([max(0.0, float(n)) for n in data[name]] for name in ("right", "wrong"))
            if len(right) != BUCKETS or len(wrong) != BUCKETS:
                raise ValueError(f"{len(right)} and {len(wrong)} buckets, not {BUCKETS}")
            repeats, alarms, spread, pairs = (float(data[name]) for name in SUMS)
            return cls(right, wrong, repeats, alarms, spread, pairs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a population's evidence: {error!r}") from error

    def _fade(self) -> None:
        """Fade all buckets a little, so that one without traffic is not trusted forever."""
        kept = 1.0 - 1.0 / MEMORY
        self.right = [count * kept for count in self.right]
        self.wrong = [count * kept for count in self.wrong]

    def _compare_entries(self, score: float, right: bool, entry: EntryEvidence) -> None:
        mean = self.curve.means[bucket_of(score)]
        wrong, expected = self.account(o for o in entry.observations if not o.is_report)
        kept = 1.0 - 1.0 / SPREAD_MEMORY
        self.spread = self.spread * kept + ((not right) - mean) * (wrong - expected)
        self.expected_pairs = self.expected_pairs * kept + mean * expected


def fitted(right: Sequence[float], wrong: Sequence[float], false_alarm: float) -> Curve:
    """The curve of these counts by bucket."""
    mean = bound = 1.0
    means: list[float] = []
    bounds: list[float] = []
    for size, bad, count in _pooled(right, wrong):
        if count > 0:
            mean = min(mean, bad / count)
            bound = min(bound, without_noise(wilson_upper(bad, count, Z_OF_CURVE), false_alarm))
        means += [mean] * size
        bounds += [bound] * size
    return Curve(tuple(means), tuple(bounds))


def _pooled(right: Sequence[float], wrong: Sequence[float]) -> list[tuple[int, float, float]]:
    """(buckets, wrong, count), pooled until the share of wrong answers falls from one block to the next:
    isotonic regression by pooling adjacent violators (Ayer et al., 1955)."""
    blocks: list[tuple[int, float, float]] = []
    for good, bad in zip(right, wrong, strict=True):
        block = (1, bad, good + bad)
        while blocks and _violates(blocks[-1], block):
            size, more, count = blocks.pop()
            block = (size + block[0], more + block[1], count + block[2])
        blocks.append(block)
    return blocks


def without_noise(share: float, false_alarm: float) -> float:
    """The share of wrong answers behind a share of "wrong" comparisons (Rogan & Gladen, "Estimating
    prevalence from the results of a screening test", 1978, with a test that misses nothing)."""
    return min(1.0, max(0.0, (share - false_alarm) / (1.0 - false_alarm))) if false_alarm < 1 else 1.0


def _violates(lower: tuple[int, float, float], higher: tuple[int, float, float]) -> bool:
    """Whether the higher scores are wrong as often or more; blocks without observations violate nothing."""
    return lower[2] > 0 and higher[2] > 0 and higher[1] * lower[2] >= lower[1] * higher[2]
