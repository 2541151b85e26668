"""Training and cross-validation of the cache's verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import GroupKFold

from cache_lab.cosines import similarities
from cache_lab.pairs import GROUPS, LabelledPair
from cache_lab.rates import MIXES, TRAFFIC, rates
from deployments.cache.decision import open_word_reader
from serve_app.cache.decision import Reading
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import Guards
from serve_app.cache.verifier.forest import LEAF, Forest
from serve_app.cache.verifier.verifier import all_features
from serve_app.settings import EmbedderSettings

DTYPES: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")
"""Precisions of the embedder. Each pair is learned with the cosine of both, so one verifier serves both."""

FOLDS = 5
TREES = 200
LEAST_IN_LEAF = 4 * len(DTYPES)
"""Of 5, 8 and 10 this has the highest recall at `strict`; another seed makes a difference of the same
size."""

FEATURES_PER_SPLIT = 0.5
SEEDS = (0, 1, 2, 3, 4)
"""Cross-validation is repeated with these; the thresholds come from the mean."""


@dataclass(frozen=True)
class Aim:
    """The aim of a threshold: at most ``false_share`` among hits in traffic, and at most ``worst_kind`` hits
    among the pairs of any hard kind."""

    false_share: float
    worst_kind: float


AIMS = {"default": Aim(0.015, 0.05), "strict": Aim(0.005, 0.025)}
"""Half of the documented limits (3 % and 1 %; 10 % of a kind, and 5 % for `strict`), because unseen pairs and
kinds are judged worse (see :func:`left_out`)."""

SMALL_KIND = 30
"""Kinds with fewer pairs are not used: their share is too uncertain."""

Matrix = NDArray[np.float32]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """``features`` [n, d]; ``vetoed`` [n]: a guard refuses the pair, whatever its score."""

    pairs: Sequence[LabelledPair]
    names: tuple[str, ...]
    features: Matrix
    vetoed: NDArray[np.bool_]

    @property
    def same(self) -> NDArray[np.bool_]:
        return np.array([pair.same for pair in self.pairs])

    @property
    def weights(self) -> Scores:
        """Weights that give each group its share in traffic."""
        groups = [pair.group for pair in self.pairs]
        share = {group: MIXES[TRAFFIC][group] / max(1, groups.count(group)) for group in GROUPS}
        return len(groups) * np.array([share[group] for group in groups])


def record_of(
    pairs: Sequence[LabelledPair], scores: Scores, limits: Sequence[float]
) -> tuple[tuple[float, float, float], ...]:
    """(lowest score, hits, wrong hits in traffic) for each range between limits; ``scores`` are
    cross-validated."""
    above = [rates(pairs, scores >= least) for least in limits]
    hits = [float(found.hits["para"]) for found in above]
    wrong = [count * found.false_share(TRAFFIC).value for count, found in zip(hits, above, strict=True)]
    beyond = zip([*hits[1:], 0.0], [*wrong[1:], 0.0], strict=True)
    return tuple(
        (float(least), these - higher, round(max(0.0, bad - higher_bad), 1))
        for least, these, bad, (higher, higher_bad) in zip(limits, hits, wrong, beyond, strict=True)
    )


def describe(pairs: Sequence[LabelledPair], embedder: str) -> Examples:
    """The features of all pairs, once for each of ``DTYPES``."""
    guards = Guards(load_word_lists())
    reader = open_word_reader(embedder)
    found = []
    for pair in pairs:
        one, two = Reading(pair.query, reader), Reading(pair.candidate, reader)
        if not one.words or not two.words:
            raise ValueError(f"a pair without words: {pair.stratum}")
        evidence = guards.evidence(one.analysed, two.analysed)
        found.append(all_features(one.words, two.words, 0.0, evidence))
    names = tuple(found[0])
    once = np.array([[row[name] for name in names] for row in found], dtype=np.float32)
    matrix = np.concatenate([once] * len(DTYPES))
    matrix[:, names.index("cosine")] = [
        cosine
        for dtype in DTYPES
        for cosine in similarities(pairs, EmbedderSettings(id="embedder", source=embedder, dtype=dtype))
    ]
    return Examples(list(pairs) * len(DTYPES), names, matrix, matrix[:, names.index("guards")] > 0)


def cross_validated(examples: Examples, seed: int) -> Scores:
    """Each pair's score from a forest that saw neither of its texts."""
    scores = np.zeros(len(examples.pairs))
    for train, test in folds(examples.pairs, seed):
        scores[test] = fit(examples, train, seed).predict_proba(examples.features[test])[:, 1]
    return scores


def left_out(
    examples: Examples, thresholds: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, float, int]]:
    """Each kind of hard pairs with its share of hits and number of rows (a pair counts once for each of
    ``DTYPES``). The guards and a forest judge it that was trained without this kind and its texts."""
    strata = np.array([pair.stratum for pair in examples.pairs])
    groups = np.array(linked(examples.pairs))
    least = np.repeat([thresholds[dtype]["default"] for dtype in DTYPES], len(strata) // len(DTYPES))
    for stratum in sorted({str(each) for each in strata if is_hard(each)}):
        mine = strata == stratum
        others = np.flatnonzero(~np.isin(groups, groups[mine]))
        scores = fit(examples, others, seed=0).predict_proba(examples.features[mine])[:, 1]
        hits = (scores >= least[mine]) & ~examples.vetoed[mine]
        yield stratum, float(hits.mean()), int(mine.sum())


def folds(pairs: Sequence[LabelledPair], seed: int) -> Iterator[tuple[Any, Any]]:
    """Folds in which texts that pairs link stay together."""
    groups = linked(pairs)
    splitter = GroupKFold(FOLDS, shuffle=True, random_state=seed)
    yield from splitter.split(np.zeros(len(pairs)), groups=groups)


def linked(pairs: Sequence[LabelledPair]) -> list[str]:
    """A name for the connected texts of each pair."""
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        while parents.setdefault(text, text) != text:
            text = parents[text]
        return text

    for pair in pairs:
        parents[root(pair.query)] = root(pair.candidate)
    return [root(pair.query) for pair in pairs]


def fit(examples: Examples, rows: Any, seed: int) -> ExtraTreesClassifier:
    """Extremely randomised trees (Geurts et al. 2006): the labels are noisy, and averaging many random splits
    ignored that best among boosting, random forest and logistic regression."""
    trees = ExtraTreesClassifier(
        TREES,
        min_samples_leaf=LEAST_IN_LEAF,
        max_features=FEATURES_PER_SPLIT,
        n_jobs=-1,
        random_state=seed,
    )
    return trees.fit(examples.features[rows], examples.same[rows], sample_weight=examples.weights[rows])


def threshold(pairs: Sequence[LabelledPair], scores: Scores, aim: Aim) -> float:
    """The lowest score above which ``aim`` is met."""
    least = 1.0
    for candidate in np.arange(0.995, 0.5, -0.001):
        hits = scores >= candidate
        false = rates(pairs, hits).false_share(TRAFFIC).value
        if false > aim.false_share or worst_kind(pairs, hits) > aim.worst_kind:
            break
        least = float(candidate)
    return round(least, 4)


def worst_kind(pairs: Sequence[LabelledPair], hits: NDArray[np.bool_]) -> float:
    """The largest share of hits in a stratum of hard pairs."""
    return max(
        (
            rate
            for stratum, rate, count in by_stratum(pairs, hits)
            if is_hard(stratum) and count >= SMALL_KIND
        ),
        default=0.0,
    )


def is_hard(stratum: str) -> bool:
    return stratum.startswith("hard:")


def by_stratum(pairs: Sequence[LabelledPair], hits: NDArray[np.bool_]) -> Iterator[tuple[str, float, int]]:
    """Stratum, share of hits, number of pairs."""
    for stratum in sorted({pair.stratum for pair in pairs}):
        mine = [hit for pair, hit in zip(pairs, hits, strict=True) if pair.stratum == stratum]
        yield stratum, sum(mine) / len(mine), len(mine)


def flatten(trees: ExtraTreesClassifier) -> Forest:
    """Every tree's nodes in one row; sklearn numbers them so that a left child follows its parent."""
    roots, columns = [], []
    offset = 0
    for tree in (estimator.tree_ for estimator in trees.estimators_):
        inner = tree.children_left >= 0
        assert (tree.children_left[inner] == np.flatnonzero(inner) + 1).all(), "nodes in another order"
        counts = tree.value[:, 0, :]
        values = counts[:, 1] / counts.sum(axis=1)
        roots.append(offset)
        columns.append(
            (
                np.where(inner, tree.feature, LEAF),
                np.where(inner, tree.threshold, 0),
                np.where(inner, tree.children_right + offset, 0),
                np.where(inner, 0, np.round(values, 3)),
            )
        )
        offset += tree.node_count
    feature, limit, right, value = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Forest(
        np.array(roots, np.int32),
        feature.astype(np.int16),
        limit.astype(np.float32),
        right.astype(np.int32),
        value.astype(np.float32),
    )
