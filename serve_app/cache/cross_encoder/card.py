"""The card of a trained cross-encoder: its thresholds, its calibration, and its results."""

from __future__ import annotations

import math

import msgspec


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns the model's logit and the embeddings' cosine into a probability, for the assumed mix of traffic.
    The cosine tells better than the model which ordinary questions have nothing to do with each other."""

    logit: float
    cosine: float
    constant: float

    def probability(self, logit: float, cosine: float) -> float:
        at = self.logit * logit + self.cosine * cosine + self.constant
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, at))))


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``embedder``: the model whose cosines the cross-encoder was calibrated with. ``max_tokens``: the limit
    for both texts together. ``least_cosine``: pairs below it are not scored. ``thresholds``: the lowest
    probability of a hit. Both are given by the name of a setting of ``cache.decision``. ``record``: the
    results on pairs that it was not trained on, by ranges of scores: (lowest score, hits, wrong hits if
    traffic is mixed as assumed). ``about``: data, time and limits, for people.
    """

    embedder: str
    max_tokens: int
    least_cosine: dict[str, float]
    calibration: Calibration
    thresholds: dict[str, float]
    record: tuple[tuple[float, float, float], ...]
    about: dict[str, str]
