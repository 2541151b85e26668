"""The trained verifier: the calibrated probability that one answer serves two texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from serve_app.cache.verifier.features import pair_features
from serve_app.cache.verifier.forest import Forest
from serve_app.cache.verifier.words import Words

FULL_PRECISION = "float32"


@dataclass(frozen=True, slots=True)
class VerifierCard:
    """The description of a trained verifier.

    ``embedder``: the model whose token vectors it was trained on. ``features``: their names, in order.
    ``thresholds``: the least probability of a hit, by the embedder's precision and the name of a setting of
    ``cache.decision``.
    ``record``: its results on pairs that it was not trained on, by ranges of scores: (lowest score, hits,
    wrong hits, if traffic is mixed as assumed).
    """

    embedder: str
    features: tuple[str, ...]
    thresholds: dict[str, dict[str, float]]
    about: str
    record: tuple[tuple[float, float, float], ...] = ()

    def threshold(self, decision: str, dtype: str = FULL_PRECISION) -> float:
        """The threshold at a precision; one that it was not trained for (16 bits) has that of full
        precision."""
        return self.thresholds.get(dtype, self.thresholds[FULL_PRECISION])[decision]


class Verifier:
    """Scores pairs of texts. Pure; may be called from several threads."""

    def __init__(self, card: VerifierCard, forest: Forest) -> None:
        self.card = card
        self._forest = forest

    def score(self, first: Words, second: Words, similarity: float, evidence: Mapping[str, bool]) -> float:
        """The probability that one answer serves both, 0 to 1. Each side has at least one word; ``evidence``
        is what the guards say of the two texts.

        Raises:
            KeyError: a guard that the verifier was trained with is missing.
        """
        features = all_features(first, second, similarity, evidence)
        values = np.array([features[name] for name in self.card.features], dtype=np.float32)
        return self._forest.probability(values)


def all_features(
    first: Words, second: Words, similarity: float, evidence: Mapping[str, bool]
) -> dict[str, float]:
    """The pair's own features, and what each guard says (``guard_<name>``: 1 if it objects)."""
    named = {f"guard_{name}": float(objects) for name, objects in evidence.items()}
    return {
        **pair_features(first, second, similarity),
        **named,
        "guards": float(sum(evidence.values())),
    }
