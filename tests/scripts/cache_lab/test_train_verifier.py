"""The verifier's training, on made-up examples."""

from __future__ import annotations

import numpy as np
import pytest
from cache_lab.pairs import LabelledPair
from cache_lab.training import (
    DTYPES,
    Aim,
    Examples,
    flatten,
    folds,
    left_out,
    linked,
    record_of,
    threshold,
    worst_kind,
)
from sklearn.ensemble import ExtraTreesClassifier


def pair(query: str, candidate: str, stratum: str) -> LabelledPair:
    return LabelledPair(query, candidate, stratum.startswith("para"), stratum)


def test_a_flattened_forest_says_what_sklearn_says() -> None:
    random = np.random.default_rng(7)
    features = random.normal(size=(300, 5)).astype(np.float32)
    same = features[:, 0] + random.normal(scale=0.5, size=300) > 0
    trees = ExtraTreesClassifier(20, min_samples_leaf=3, random_state=0).fit(features, same)
    forest = flatten(trees)
    ours = [forest.probability(row) for row in features]
    assert ours == pytest.approx(trees.predict_proba(features)[:, 1].tolist(), abs=1e-3)


def test_linked_texts_share_a_fold() -> None:
    pairs = [
        pair("a", "b", "para:x"),
        pair("b", "c", "diff:x"),
        pair("d", "e", "para:x"),
        pair("c", "f", "hard:x"),
    ]
    groups = linked(pairs)
    assert groups[0] == groups[1] == groups[3] != groups[2]
    many = [pair(f"q{number // 2}", f"c{number}", "para:x") for number in range(40)]
    for train, test in folds(many, seed=0):
        assert not {many[row].query for row in train} & {many[row].query for row in test}


def test_the_threshold_keeps_the_aim_and_every_kind_of_hard_pairs() -> None:
    pairs = [pair(f"p{n}", f"p{n}'", "para:x") for n in range(100)]
    pairs += [pair(f"d{n}", f"d{n}'", "diff:x") for n in range(100)]
    pairs += [pair(f"h{n}", f"h{n}'", "hard:x") for n in range(100)]
    scores = np.concatenate([np.linspace(0.6, 0.99, 100), np.full(100, 0.1), np.linspace(0.1, 0.8, 100)])
    least = threshold(pairs, scores, Aim(false_share=0.02, worst_kind=0.08))
    assert worst_kind(pairs, scores >= least) <= 0.08
    assert worst_kind(pairs, scores >= least - 0.05) > 0.08


def test_the_record_tells_hits_and_wrong_ones_of_each_range_by_itself() -> None:
    pairs = [pair(f"p{n}", f"p{n}'", "para:x") for n in range(100)]
    pairs += [pair(f"d{n}", f"d{n}'", "diff:x") for n in range(100)]
    scores = np.concatenate([np.full(60, 0.95), np.full(40, 0.7), np.full(99, 0.1), np.full(1, 0.7)])
    low, high = record_of(pairs, scores, [0.6, 0.9])
    assert high == (0.9, 60.0, 0.0)
    assert low[:2] == (0.6, 40.0)
    # One in a hundred of the different ones, weighted as in traffic: 0.65 × 1 % beside 0.30 × 100 %.
    assert low[2] == pytest.approx(100 * 0.0065 / (0.0065 + 0.30), abs=0.05)


def test_a_kind_that_was_left_out_is_judged_by_what_the_others_teach() -> None:
    strata = ["para:x"] * 60 + ["diff:x"] * 60 + ["hard:alike"] * 20 + ["hard:unlike"] * 20
    looks = {"para:x": 1.0, "diff:x": 0.0, "hard:alike": 1.0, "hard:unlike": 0.0}
    pairs = [pair(f"q{n}", f"c{n}", stratum) for n, stratum in enumerate(strata)] * len(DTYPES)
    features = np.array([[looks[each.stratum]] for each in pairs], np.float32)
    vetoed = np.array([each.stratum == "hard:alike" and each.query.endswith("1") for each in pairs])
    examples = Examples(pairs, ("cosine",), features, vetoed)
    found = {
        stratum: (rate, count)
        for stratum, rate, count in left_out(examples, {dtype: {"default": 0.5} for dtype in DTYPES})
    }
    # Nothing of its kind has taught the forest that it is wrong; a guard's objection stands.
    assert found == {"hard:alike": (0.9, 40), "hard:unlike": (0.0, 40)}
