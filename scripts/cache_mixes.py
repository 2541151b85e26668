"""What a decision is worth: recall and false share of labelled pairs, in assumed mixes of traffic.

A *mix* says which share of near look-ups are paraphrases, ordinary different questions, and hard negatives. A
list of pairs has its own shares, so each group's rate is taken by itself and weighted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serve_app.cache.bound.population import wilson_lower, wilson_upper

GROUPS = ("para", "diff", "hard")
MIXES: Mapping[str, Mapping[str, float]] = {
    "traffic 30/65/5": {"para": 0.30, "diff": 0.65, "hard": 0.05},
    "traffic 30/55/15": {"para": 0.30, "diff": 0.55, "hard": 0.15},
}
"""Assumed shares, nobody's measured traffic. "As the file is" comes from the file."""

TRAFFIC = "traffic 30/65/5"
AS_IT_IS = "as the file is"
Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """``same``: an answer to one text serves for the other. ``stratum``: ``group:kind``."""

    query: str
    candidate: str
    same: bool
    stratum: str

    @property
    def group(self) -> str:
        return self.stratum.partition(":")[0]


def read_pairs(path: Path) -> list[LabelledPair]:
    """Raises:
    ValueError: a line is no pair; the message names file and line.
    """
    return [_pair(path, number, line) for number, line in enumerate(_lines(path), 1) if line.strip()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason})") from error


def _pair(path: Path, number: int, line: str) -> LabelledPair:
    where = f"{path}:{number}"
    try:
        found = json.loads(line)
        pair = LabelledPair(found["query"], found["candidate"], found["same"], found["stratum"])
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: no JSON ({error.msg})") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where}: an object with query, candidate, same and stratum is wanted") from error
    if not isinstance(pair.same, bool) or not all(
        isinstance(text, str) for text in (pair.query, pair.candidate, pair.stratum)
    ):
        raise ValueError(f"{where}: query, candidate and stratum are texts, same is true or false")
    if pair.group not in GROUPS:
        raise ValueError(f"{where}: stratum {pair.stratum!r} must begin with one of {', '.join(GROUPS)}")
    if pair.same != (pair.group == "para"):
        raise ValueError(f"{where}: same is {pair.same} in stratum {pair.stratum!r}")
    return pair


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
        """Wrong hits among all hits. The interval comes from those of the two groups' rates, so it is a
        careful one; 0 where nothing hits."""
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
    """The score interval of a share (Wilson 1927), 95 %; 0 to 1 of nothing."""
    if trials == 0:
        return Interval(0.0, 0.0, 1.0)
    return Interval(
        successes / trials, wilson_lower(successes, trials, Z_95), wilson_upper(successes, trials, Z_95)
    )
