"""Train the cache's verifier on labelled pairs.

    python scripts/train_verifier.py --pairs PAIRS.jsonl [--embedder SOURCE] [--out FOLDER]

Prints cross-validated figures (no text of a tested pair was seen in training), chooses the two thresholds
from them, trains on everything and writes the card and the forest. Texts are not stored in either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from cache_lab.cosines import EMBEDDER
from cache_lab.pairs import LabelledPair, read_pairs
from cache_lab.rates import TRAFFIC, rates
from cache_lab.training import (
    AIMS,
    DTYPES,
    FOLDS,
    SEEDS,
    TREES,
    by_stratum,
    cross_validated,
    describe,
    fit,
    flatten,
    left_out,
    record_of,
    threshold,
)

from serve_app.cache.verifier.library import save_verifier, trained_folder
from serve_app.cache.verifier.verifier import FULL_PRECISION, VerifierCard


def main() -> None:
    options = arguments()
    pairs = read_pairs(options.pairs)
    examples = describe(pairs, options.embedder)
    scores = np.mean([cross_validated(examples, seed) for seed in SEEDS], axis=0)
    scores[examples.vetoed] = 0.0
    by_dtype = dict(zip(DTYPES, np.split(scores, len(DTYPES)), strict=True))
    thresholds = {
        dtype: {name: threshold(pairs, mine, aim) for name, aim in AIMS.items()}
        for dtype, mine in by_dtype.items()
    }
    about = f"{len(pairs)} pairs, {TREES} trees; cross-validated in {FOLDS} folds without shared texts"
    for dtype, name in product(DTYPES, AIMS):
        hits = by_dtype[dtype] >= thresholds[dtype][name]
        found = rates(pairs, hits)
        false = found.false_share(TRAFFIC)
        line = (
            f"{name}, {dtype}: recall {found.recall().value:.3f}, false share {false.value:.4f} ({TRAFFIC})"
        )
        print(line)
        about += f"; {line}"
        print_strata(pairs, hits)
    print("hits of a kind of hard pairs that was left out of training, default setting:")
    for stratum, rate, count in left_out(examples, thresholds):
        print(f"  {stratum:24} {rate:6.3f} of {count}")
    forest = flatten(fit(examples, np.arange(len(examples.pairs)), seed=0))
    limits = sorted(thresholds[FULL_PRECISION].values())
    record = record_of(pairs, by_dtype[FULL_PRECISION], limits)
    card = VerifierCard(options.embedder, examples.names, thresholds, about, record)
    print(save_verifier(card, forest, options.out), f"{len(forest.feature)} nodes")


def print_strata(pairs: Sequence[LabelledPair], hits: NDArray[np.bool_]) -> None:
    for stratum, rate, count in by_stratum(pairs, hits):
        print(f"  {stratum:24} {rate:6.3f} of {count}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--embedder", default=EMBEDDER)
    parser.add_argument("--out", type=Path, default=trained_folder())
    return parser.parse_args()


if __name__ == "__main__":
    main()
