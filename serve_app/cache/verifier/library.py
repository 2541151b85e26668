"""The trained verifiers that ship, one for each embedder: ``<name>.json`` (the card) and ``<name>.npz``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import numpy as np

from serve_app.cache.verifier.forest import Forest
from serve_app.cache.verifier.verifier import Verifier, VerifierCard

PACKAGE = "serve_app.cache.verifier"
ARRAYS = ("roots", "feature", "threshold", "right", "value")


def trained_folder() -> Path:
    return Path(str(files(PACKAGE))) / "trained"


def function_words() -> frozenset[str]:
    """The words that shape a question and say little. Raises ``OSError`` where the file is missing."""
    text = (files(PACKAGE) / "data" / "function_words_en.txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return frozenset(word for line in lines for word in line.split())


def find_verifier(embedder: str, guards: Iterable[str], folder: Path | None = None) -> Verifier | None:
    """The verifier trained on ``embedder`` (a hub id or a folder of that name), or ``None``. ``guards`` are
    the names of those that run.

    Raises:
        ValueError: its two files do not belong together, or it was trained with a guard that does not run.
    """
    base = (folder or trained_folder()) / _file_name(embedder)
    if not base.with_suffix(".json").is_file():
        return None
    card = _card(base.with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(base.with_suffix(".npz"), allow_pickle=False) as arrays:
        forest = Forest(*(arrays[name] for name in ARRAYS))
    if forest.feature.max() >= len(card.features):
        raise ValueError(f"verifier {base}: the forest asks for more features than the card names")
    missing = {name for name in card.features if name.startswith("guard_")} - {
        f"guard_{name}" for name in guards
    }
    if missing:
        raise ValueError(f"verifier {base}: trained with {', '.join(sorted(missing))}, which do not run")
    return Verifier(card, forest)


def save_verifier(card: VerifierCard, forest: Forest, folder: Path) -> Path:
    """Write the two files; returns the card's path."""
    base = folder / _file_name(card.embedder)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(base.with_suffix(".npz"), **{name: getattr(forest, name) for name in ARRAYS})
    path = base.with_suffix(".json")
    path.write_text(json.dumps(asdict(card), indent=2) + "\n", encoding="utf-8")
    return path


def _card(text: str) -> VerifierCard:
    fields = json.loads(text)
    record = tuple(
        (float(least), float(hits), float(wrong)) for least, hits, wrong in fields.get("record", ())
    )
    return VerifierCard(**{**fields, "features": tuple(fields["features"]), "record": record})


def _file_name(embedder: str) -> str:
    """``sentence-transformers/all-MiniLM-L6-v2`` and a prepared folder of it have one name; dots that
    ``with_suffix`` would take for a suffix are replaced."""
    return embedder.rstrip("/").rpartition("/")[2].rpartition("--")[2].replace(".", "_")
