"""A trained forest of decision trees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LEAF = -1
STEPS = 4
"""Down the trees before it is asked whether all are at a leaf."""


@dataclass(frozen=True)
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
        """The trees' mean; ``features`` [n] in the order of training. All trees go down together: one by one
        in Python takes four times as long when the nodes are not in the processor's cache."""
        feature, children = self._walk
        at = self.roots.astype(np.intp)
        while np.any(self.feature[at] != LEAF):
            for _ in range(STEPS):
                goes_right = ~(features[feature[at]] <= self.threshold[at])
                at = children[2 * at + goes_right]
        return float(self.value[at].mean(dtype=np.float64))

    @cached_property
    def _walk(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """By node the feature, and two by two the children. A leaf is its own child."""
        nodes = np.arange(len(self.feature))
        is_leaf = self.feature == LEAF
        left, right = np.where(is_leaf, nodes, nodes + 1), np.where(is_leaf, nodes, self.right)
        feature = np.where(is_leaf, 0, self.feature).astype(np.intp)
        return feature, np.stack([left, right], axis=1).ravel()
