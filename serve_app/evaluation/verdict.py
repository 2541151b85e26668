"""Verdicts: worse, not worse, undecided. A loss is judged against a margin, the largest that is accepted.

- **Not worse**: the interval's upper end is below the margin. Also a loss that is certain but small is none.
- **Worse**: the chance of such a loss without a cause is at most the level, which the order's draw
  guarantees: of twenty runs of a target against itself one says "worse". A run that asks two questions, as
  quality and latency, gives each one half of ``LEVEL``.
- **Undecided**: neither, with the number of pairs that would decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from serve_app.evaluation.statistics import LEVEL, TAIL, Loss, holm

SCORE_MARGIN = 0.03
"""Three points of a mean score of 0 to 1 (or of the share of cases that pass)."""

TIME_MARGIN = 0.05
"""A share of the baseline's time."""

LEAST_PAIRS = 20
"""Pairs of times: with fewer the bootstrap is not reliable. Scores need no such bound: their interval counts
one lost case more, so that few cases never show that a candidate is not worse."""


class Verdict(StrEnum):
    """What a comparison says of the candidate."""

    WORSE = "worse"
    NOT_WORSE = "not worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``needed``: pairs in all that would decide; ``None`` unless undecided."""

    loss: Loss
    margin: float
    verdict: Verdict
    needed: int | None = None


def judge_scores(loss: Loss, margin: float = SCORE_MARGIN, level: float = LEVEL) -> Judgement:
    """``margin``: above 0; points of a mean score."""
    return _judged(loss, margin, level)


def judge_shares(
    losses: Mapping[str, Loss], margin: float = SCORE_MARGIN, level: float = LEVEL
) -> dict[str, Judgement]:
    """Several scores of the same cases. That any of them is found worse without a cause stays as rare as for
    one (Holm)."""
    chances = holm({name: loss.chance for name, loss in losses.items()})
    return {
        name: _judged(replace(loss, chance=chances[name]), margin, level) for name, loss in losses.items()
    }


def judge_times(
    losses: Mapping[str, Loss], margin: float = TIME_MARGIN, level: float = LEVEL
) -> dict[str, Judgement]:
    """Several times of the same requests, whose chances are those of ``losses_of_times``: that any of them is
    found worse without a cause is as rare as for one. ``margin``: above 0; a share of the baseline's time."""
    return {name: _with_least(_judged(loss, math.log1p(margin), level)) for name, loss in losses.items()}


def judge_former(losses: Mapping[str, Loss]) -> dict[str, Judgement]:
    """Times against the most that an earlier report allows. No order was drawn, so the interval has to be
    beyond that, too."""
    chances = holm({name: loss.chance for name, loss in losses.items()})
    sure = {name: chances[name] if loss.interval.low > 0 else 1.0 for name, loss in losses.items()}
    return {
        name: _with_least(_judged(replace(loss, chance=sure[name]), 0.0, TAIL))
        for name, loss in losses.items()
    }


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Worse if one is; not worse if all are; no verdicts: not worse."""
    found = set(verdicts)
    for verdict in (Verdict.WORSE, Verdict.UNDECIDED):
        if verdict in found:
            return verdict
    return Verdict.NOT_WORSE


def _judged(loss: Loss, margin: float, level: float) -> Judgement:
    if loss.interval.high < margin:
        return Judgement(loss, margin, Verdict.NOT_WORSE)
    if loss.chance <= level:
        return Judgement(loss, margin, Verdict.WORSE)
    return Judgement(loss, margin, Verdict.UNDECIDED, loss.needed(margin, level))


def _with_least(judgement: Judgement) -> Judgement:
    if judgement.loss.count >= LEAST_PAIRS:
        return judgement
    return replace(judgement, verdict=Verdict.UNDECIDED, needed=max(LEAST_PAIRS, judgement.needed or 0))
