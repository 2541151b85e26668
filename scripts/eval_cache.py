"""Measure how often the semantic cache is right and wrong on labelled pairs of texts.

    python scripts/eval_cache.py [--pairs FILE.jsonl|FILE.tsv|FOLDER] [--settings config.yaml] [--out FOLDER]

It runs the decision that serves traffic, with the embedder of the settings. Each line of the file is an
object with `query`, `candidate`, `same` (one answer serves both) and `stratum` (`para:…`, `diff:…` or
`hard:…`); without a file, Promptly's own pairs are used, and without settings those of `config/local.yaml`.
Two runs give the same figures, except the times. Figures of pairs are better than those of a cache, which
takes the nearest of many entries.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cache_lab.cosines import similarities
from cache_lab.evaluation import SETTINGS, Report, judge, plot
from cache_lab.pairs import OWN_PAIRS, WRITTEN_PAIRS, LabelledPair, read_pairs

from deployments.cache.decision import open_decision
from serve_app.cache.cross_encoder import find_cross_encoder
from serve_app.settings import EmbedderSettings, load_file
from serve_app.settings.cache import CacheSettings, Strictness

SHIPPED = Path(__file__).parents[1] / "config" / "local.yaml"


def main() -> None:
    options = arguments()
    try:
        pairs = read_pairs(options.pairs)
        embedder, cache = configured(options.settings)
    except (OSError, ValueError) as error:
        sys.exit(f"eval_cache: {error}")
    if not pairs:
        sys.exit(f"eval_cache: {options.pairs} holds no pairs")
    cosines = similarities(pairs, embedder)
    decisions = {
        name: open_decision(cache.model_copy(update={"decision": name}), embedder.source)
        for name in configured_first(cache.decision)
    }
    judged = [judge(name, decision, pairs, cosines) for name, decision in decisions.items()]
    name = f"{embedder.source} ({embedder.chosen_backend}, {embedder.dtype})"
    seen = seen_by_training(pairs, embedder.source)
    report = Report(options.pairs.name, name, pairs, cosines, judged, seen)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "eval_cache.md").write_text(report.markdown(), encoding="utf-8")
    (options.out / "eval_cache.json").write_text(json.dumps(report.values(), indent=1), encoding="utf-8")
    plot(report, options.out / "eval_cache.png")
    print(report.markdown())
    print(f"Written to {options.out}/eval_cache.md, .json and .png")


def seen_by_training(pairs: Sequence[LabelledPair], embedder: str) -> str:
    """How many pairs share a text with each file of written pairs, and from what the verifier learned."""
    files = {file.stem: texts_of(read_pairs(file)) for file in sorted(WRITTEN_PAIRS.glob("*.tsv"))}
    counts = {
        name: sum(not known.isdisjoint(texts_of([pair])) for pair in pairs) for name, known in files.items()
    }
    written = frozenset().union(*files.values())
    count = sum(not written.isdisjoint(texts_of([pair])) for pair in pairs)
    of_each = ", ".join(f"{name} {shared}" for name, shared in counts.items() if shared)
    encoder = find_cross_encoder(embedder)
    data = "none is shipped for this embedder" if encoder is None else encoder.card.about["data"]
    shared = f"{count} of {len(pairs)} pairs share a text with the written ones"
    return f"{shared}{f' ({of_each})' if of_each else ''}; the verifier learned from: {data}."


def texts_of(pairs: Sequence[LabelledPair]) -> frozenset[str]:
    return frozenset(text for pair in pairs for text in (pair.query, pair.candidate))


def configured_first(decision: Strictness) -> tuple[Strictness, ...]:
    """The settings to evaluate; the tables by kind, language and so on are of the first."""
    return (decision, *(name for name in SETTINGS if name != decision))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=OWN_PAIRS)
    parser.add_argument(
        "--settings",
        type=Path,
        help="a config file, whose embedder and cache are evaluated; default: config/local.yaml",
    )
    parser.add_argument("--out", type=Path, default=Path("bench"))
    return parser.parse_args()


def configured(path: Path | None) -> tuple[EmbedderSettings, CacheSettings]:
    """The embedder and the cache's settings; of the shipped config without a path.

    Raises:
        ValueError: the file has no embedder, or is not valid.
    """
    for settings in load_file(path or SHIPPED):
        if settings.embedder is not None:
            return settings.embedder, settings.cache or CacheSettings()
    raise ValueError(f"{path}: no embedder, so there is no semantic cache to evaluate")


if __name__ == "__main__":
    main()
