"""Train the cache's cross-encoder: fine-tune the embedder's own weights on labelled pairs.

    python scripts/train_cross_encoder.py [--pairs FILE …] [--hold-out written/e5 …] [--out FOLDER]

The English pairs of `--hold-out` (files of `cache_lab/data`) are not trained on: from them come calibration,
thresholds and record. With `--checkpoint` (weights of an earlier run) nothing is
trained. Only the written English pairs, and what `--pairs` names, are used. Texts are not stored in the
result. About half an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE, embedder_settings, similarities
from cache_lab.cross_export import export
from cache_lab.cross_training import PairModel, Plan, fit
from cache_lab.pairs import OWN_PAIRS, WRITTEN_PAIRS, LabelledPair, read_pairs
from cache_lab.rates import TRAFFIC, rates
from cache_lab.thresholds import AIMS, calibrate, record_of, threshold

from serve_app.cache.cross_encoder import Card, CrossEncoder
from serve_app.cache.cross_encoder.card import Calibration
from serve_app.cache.cross_encoder.library import folder_of, write_card
from serve_app.cache.decision import Reading
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import Guards
from serve_app.model_store import ModelStore, default_cache_dir

AUTHORS = ("e1", "e2", "e3", "e4", "e5", "f1", "f2", "f3", "f4")
NEAR = ("n1", "m1")
"""Files of ordinary different questions that are near. They count twice: most of what a cache looks up is
such a question."""

HELD = ("written/e5", "blind/first", "blind/second")
"""The blind halves are open: other authors than those of the training pairs wrote them, so they show what
the model does with text that it does not know."""

LEAST_COSINE = {"balanced": 0.60, "strict": 0.70}
"""On every list of pairs a lower cosine than 0.70 finds more and is not more often wrong: paraphrases with
few words in common lie at 0.5 to 0.7, and the verifier tells them from other questions. Below 0.60 little is
gained."""

SERVED_TOKENS = 128
"""More than training cuts at: a longer text is read whole or not at all."""

NO_LOGIT = -100.0
UNREAD = Calibration(1.0, 0.0, 0.0)
LIMITS = (
    "English only; letter case is invisible to it; pairs beyond max_tokens are refused, and no pair beyond "
    "80 tokens was trained on; three authors' pairs chose calibration and thresholds, and guards' rules were "
    "written with some of the pairs in sight; swapped roles, directions and opposites in other words are "
    "what it lets through most"
)


def main() -> None:
    options = arguments()
    weights = Path(ModelStore(default_cache_dir()).resolve(EMBEDDER))
    held = held_pairs(options.hold_out)
    pairs = training_pairs(options.pairs, options.hold_out, held)
    plan = Plan(options.epochs, options.seed, options.threads, options.minutes)
    started = time.monotonic()
    if options.checkpoint is None:
        model, seen = fit(weights, pairs, plan)
        took = f"{seen} pairs seen, seed {plan.seed}, {(time.monotonic() - started) / 60:.0f} minutes"
    else:
        model, took = PairModel(weights), options.took
        model.load_state_dict(torch.load(options.checkpoint, weights_only=True))
    folder = options.out or folder_of(EMBEDDER)
    export(model, weights, folder)
    written = " ".join([*authors(options.hold_out), *NEAR])
    about = {"data": f"{len(pairs):,} pairs: written ({written}; near ones twice) and {options.sources}"}
    print(
        write_card(
            carded(folder, held, about | {"training": took, "limits": LIMITS}, options.hold_out), folder
        )
    )


def held_pairs(names: Sequence[str]) -> list[LabelledPair]:
    """The English pairs of these files of ``cache_lab/data``."""
    files = [WRITTEN_PAIRS.parent / f"{name}.tsv" for name in names]
    return [pair for file in files for pair in read_pairs(file) if pair.language == "en"]


def training_pairs(
    files: Sequence[Path], hold_out: Sequence[str], held: Sequence[LabelledPair]
) -> list[LabelledPair]:
    """The written English pairs and those of ``files`` that share no text with ``held``, with a blind pair or
    with the project's first own pairs, which stay unseen."""
    unseen = [*held, *read_pairs(WRITTEN_PAIRS.parent / "blind"), *read_pairs(OWN_PAIRS)]
    kept_out = {text for pair in unseen for text in (pair.query, pair.candidate)}
    near = [pair for name in NEAR for pair in read_pairs(WRITTEN_PAIRS / f"{name}.tsv")]
    found = [pair for name in authors(hold_out) for pair in read_pairs(WRITTEN_PAIRS / f"{name}.tsv")]
    found += near + [pair for pair in near if pair.group == "diff"]
    found += chain.from_iterable(read_pairs(file) for file in files)
    return [pair for pair in found if kept_out.isdisjoint((pair.query, pair.candidate))]


def authors(held: Sequence[str]) -> list[str]:
    return [name for name in AUTHORS if f"written/{name}" not in held]


def carded(
    folder: Path, held: Sequence[LabelledPair], about: dict[str, str], hold_out: Sequence[str]
) -> Card:
    """The card, from the served graph's scores of the pairs that were held out."""
    encoder = CrossEncoder(Card(EMBEDDER, SERVED_TOKENS, {}, UNREAD, {}, (), {}), folder)
    cosines = np.array(similarities(held, embedder_settings(dtype=SHIPPED_DTYPE)))
    scored = [encoder.logit(pair.candidate, pair.query) for pair in held]
    logits = np.array([NO_LOGIT if logit is None else logit for logit in scored])
    guards = Guards(load_word_lists())
    passed = (cosines >= LEAST_COSINE["balanced"]) & (logits > NO_LOGIT)
    passed &= [
        guards.objection(Reading(pair.query).analysed, Reading(pair.candidate).analysed) is None
        for pair in held
    ]
    rows = np.flatnonzero(passed)
    calibration = calibrate([held[row] for row in rows], logits[rows], cosines[rows])
    scores = np.array([calibration.probability(*each) for each in zip(logits, cosines, strict=True)])
    scores[~passed] = 0.0
    near = {name: scores * (cosines >= least) for name, least in LEAST_COSINE.items()}
    thresholds = {name: threshold(held, near[name], aim) for name, aim in AIMS.items()}
    for name, least in thresholds.items():
        found = rates(held, near[name] >= least)
        about[name] = (
            f"on {' '.join(hold_out)}, which chose it: recall {found.recall().value:.3f}, false share "
            f"{found.false_share(TRAFFIC).value:.4f} ({TRAFFIC}), hard pairs hit {found.rate('hard'):.3f}"
        )
        print(name, least, about[name])
    limits = sorted(set(thresholds.values()) | {(1 + max(thresholds.values())) / 2})
    record = record_of(held, scores, limits)
    return Card(EMBEDDER, SERVED_TOKENS, LEAST_COSINE, calibration, thresholds, record, about)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=Path, nargs="*", default=[], help="further pairs to train on")
    parser.add_argument("--sources", default="none other", help="what the card calls them")
    parser.add_argument("--hold-out", nargs="+", default=[*HELD])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="end then, whatever the epochs")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--took", default="", help="what the card says of a checkpoint's training")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
