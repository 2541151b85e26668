"""From a cross-encoder's logits on pairs that it was not trained on: calibration, thresholds and record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from cache_lab.pairs import GROUPS, LabelledPair
from cache_lab.rates import MIXES, TRAFFIC, rates
from serve_app.cache.cross_encoder.card import Calibration

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Aim:
    """What a threshold is chosen for: at most ``false_share`` among hits in traffic, and at most ``hard``
    of the hard pairs hit."""

    false_share: float
    hard: float


AIMS = {"balanced": Aim(0.01, 0.025), "strict": Aim(0.006, 0.0075)}
"""Below the documented limits (3 % and 1 %; 5 % of the hard pairs): another author's hard pairs pass more
often, and one ordinary question of the hundred that an author wrote makes a false share of 4 %."""


def calibrate(pairs: Sequence[LabelledPair], logits: Scores, cosines: Scores) -> Calibration:
    """Logistic regression; each group weighs as much as in traffic."""
    groups = [pair.group for pair in pairs]
    share = {group: MIXES[TRAFFIC][group] / max(1, groups.count(group)) for group in GROUPS}
    weights = len(groups) * np.array([share[group] for group in groups])
    model = LogisticRegression(C=10.0)
    model.fit(np.stack([logits, cosines], axis=1), [pair.same for pair in pairs], sample_weight=weights)
    (by_logit, by_cosine), constant = model.coef_[0], model.intercept_[0]
    return Calibration(round(float(by_logit), 4), round(float(by_cosine), 4), round(float(constant), 4))


def threshold(pairs: Sequence[LabelledPair], scores: Scores, aim: Aim) -> float:
    """The least score from which on ``aim`` is kept; 1 if no score keeps it."""
    least = 1.0
    for candidate in np.arange(0.999, 0.3, -0.001):
        found = rates(pairs, scores >= candidate)
        if found.false_share(TRAFFIC).value > aim.false_share or found.rate("hard") > aim.hard:
            break
        least = float(candidate)
    return round(least, 4)


def record_of(
    pairs: Sequence[LabelledPair], scores: Scores, limits: Sequence[float]
) -> tuple[tuple[float, float, float], ...]:
    """(lowest score, hits, wrong ones among them in traffic) of each range between rising ``limits``."""
    above = [rates(pairs, scores >= least) for least in limits]
    hits = [float(found.hits["para"]) for found in above]
    wrong = [count * found.false_share(TRAFFIC).value for count, found in zip(hits, above, strict=True)]
    beyond = zip([*hits[1:], 0.0], [*wrong[1:], 0.0], strict=True)
    return tuple(
        (float(least), float(these - higher), round(float(max(0.0, bad - higher_bad)), 1))
        for least, these, bad, (higher, higher_bad) in zip(limits, hits, wrong, beyond, strict=True)
    )
