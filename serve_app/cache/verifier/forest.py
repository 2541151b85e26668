"""A trained forest of decision trees, evaluated all trees at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAF = -1


@dataclass(frozen=True, slots=True)
class Forest:
    """The nodes of every tree one after the other; a left child follows its parent.

    ``roots`` [trees]. By node: ``feature`` (``LEAF``: none), ``threshold`` (left if the value is at most
    that), ``right`` (the other child), ``value`` (a leaf's probability).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    def probability(self, features: NDArray[np.float32]) -> float:
        """The trees' mean; ``features`` [n] in the order of training."""
        nodes = self.roots
        while True:
            asked = self.feature[nodes]
            inner = asked != LEAF
            if not inner.any():
                return float(self.value[nodes].mean())
            left = features[asked] <= self.threshold[nodes]
            nodes = np.where(inner, np.where(left, nodes + 1, self.right[nodes]), nodes)
