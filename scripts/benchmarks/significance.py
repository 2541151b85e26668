"""Whether two series of times differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

PERMUTATIONS = 10_000


def median_difference(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of the first series minus that of the second."""
    first, second = np.median(np.asarray(pairs), axis=0)
    return float(first - second)


def paired_p(pairs: Sequence[tuple[float, float]], permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """The two-sided probability of so large a difference if the order within each pair were chance:
    Wilcoxon's signed-rank test (1945), with random signs. Both values of a pair are measured one after the
    other, so drift of the machine affects both; ranks keep single slow requests from deciding."""
    differences = np.subtract(*np.asarray(pairs, dtype=float).T)
    ranks = _ranks(np.abs(differences))
    observed = abs(float(np.sign(differences) @ ranks))
    signs = np.random.default_rng(seed).integers(0, 2, (permutations, len(ranks)), dtype=np.int8) * 2.0 - 1.0
    as_large = np.sum(np.abs(signs @ ranks) >= observed - 1e-9)
    # The observed order is one of the possible ones: p is never 0.
    return float((1 + as_large) / (1 + permutations))


def _ranks(values: Any) -> Any:
    """Ranks from 1; equal values share the mean of their ranks, and zero differences have none."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.where(values == 0, 0.0, (ends - (counts - 1) / 2)[inverse])
