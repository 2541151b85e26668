"""Measure how often the semantic cache takes a text's nearest neighbour for the same question.

    python scripts/look_up_among.py [--lists written/e5 blind/first …]

Each text of the lists (files of `cache_lab/data`, English pairs) is looked up among all the other texts, on
the path of service, once with each setting. A hit counts as wrong unless a reader judged the pair the same
(`cache_lab/data/nearest/judged.tsv`); with another verifier, read the unjudged hits first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cache_lab.cosines import EMBEDDER, Vectors, embedder_settings
from cache_lab.evaluation import SETTINGS
from cache_lab.nearest import look_up, read_judged
from cache_lab.pairs import WRITTEN_PAIRS, LabelledPair, read_pairs

from deployments.cache.decision import open_decision
from serve_app.settings.cache import CacheSettings

LISTS = ("written/e5", "blind/first", "blind/second", "blind/third")
"""By other authors than those of the training pairs."""


def main() -> None:
    pairs = english_pairs(arguments().lists)
    vectors = Vectors(embedder_settings())
    vectors.read(text for pair in pairs for text in (pair.query, pair.candidate))
    for name in SETTINGS:
        found = look_up(pairs, open_decision(CacheSettings(decision=name), EMBEDDER), vectors, read_judged())
        print(
            f"{name}: {found.look_ups} look-ups, {found.right} right hits, {found.wrong} wrong "
            f"({100 * found.wrong_share:.2f} %; {found.unjudged} of them unjudged)",
            flush=True,
        )


def english_pairs(lists: Sequence[str]) -> list[LabelledPair]:
    files = [WRITTEN_PAIRS.parent / f"{name}.tsv" for name in lists]
    return [pair for file in files for pair in read_pairs(file) if pair.language == "en"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lists", nargs="+", default=[*LISTS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
