"""A forest of two small trees, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.cache.verifier.forest import LEAF, Forest

FOREST = Forest(
    # Tree one: feature 0 <= 0.5 ? 0.0 : (feature 1 <= 2 ? 0.5 : 1.0). Tree two: a leaf.
    roots=np.array([0, 5], np.int32),
    feature=np.array([0, LEAF, 1, LEAF, LEAF, LEAF], np.int16),
    threshold=np.array([0.5, 0, 2.0, 0, 0, 0], np.float32),
    right=np.array([2, 0, 4, 0, 0, 0], np.int32),
    value=np.array([0, 0.0, 0, 0.5, 1.0, 0.2], np.float32),
)


@pytest.mark.parametrize(
    ("features", "tree"),
    [((0.5, 9.0), 0.0), ((0.6, 2.0), 0.5), ((0.6, 2.1), 1.0), ((float("nan"), 0.0), 0.5)],
)
def test_a_probability_is_the_mean_of_the_trees(features: tuple[float, float], tree: float) -> None:
    assert FOREST.probability(np.array(features, np.float32)) == pytest.approx((tree + 0.2) / 2)
