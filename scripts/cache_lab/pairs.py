"""Labelled pairs of texts: whether an answer to one text serves for the other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUPS = ("para", "diff", "hard")
"""Paraphrases, ordinary different questions, and hard negatives."""

OWN_PAIRS = Path(__file__).parent / "own_pairs" / "pairs.jsonl"
"""The project's first own pairs; ``README.md`` beside them says how they were made."""

WRITTEN_PAIRS = Path(__file__).parent / "data" / "written"
"""The pairs that the cross-encoder learned from, a file for each author; see ``README.md`` there."""

COLUMNS = ("label", "sort", "kind", "language", "domain", "query", "candidate")
"""Columns of a file of tab-separated pairs."""

SORTS = {("=", "paraphrase"): "para", ("!", "neighbour"): "diff", ("!", "hard"): "hard"}
"""The group of a pair, by its label and sort in a tab-separated file."""

WORD = re.compile(r"\w+")
BANDS = ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.01))
"""Bands of word overlap, from and below."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """``same``: an answer to one text serves for the other. ``stratum``: ``group:kind``. ``language`` and
    ``domain`` are empty where a file does not name them."""

    query: str
    candidate: str
    same: bool
    stratum: str
    language: str = ""
    domain: str = ""

    @property
    def group(self) -> str:
        return self.stratum.partition(":")[0]

    @property
    def overlap(self) -> float:
        """Words in common, as a share of all words of both texts, whatever their case (Jaccard)."""
        one, two = (set(WORD.findall(text.casefold())) for text in (self.query, self.candidate))
        return len(one & two) / len(one | two) if one | two else 0.0

    @property
    def band(self) -> str:
        low, high = next((low, high) for low, high in BANDS if low <= self.overlap < high)
        return f"overlap ≥ {low}" if high > 1 else f"overlap {low}–{high}"


def read_pairs(path: Path) -> list[LabelledPair]:
    """The pairs of a file of JSON lines, of a tab-separated file (``.tsv``, see ``COLUMNS``), or of every
    such file in a folder.

    Raises:
        OSError: there is no such file.
        ValueError: a line is not a pair; the message names file and line.
    """
    if path.is_dir():
        return [pair for file in sorted(path.glob("*.tsv")) for pair in read_pairs(file)]
    read: Callable[[str], LabelledPair] = _tabbed if path.suffix == ".tsv" else _json
    found = []
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            try:
                found.append(read(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    return found


def _lines(path: Path) -> list[str]:
    try:
        # Not ``splitlines``: a text may hold a form feed or another of its many separators.
        return path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason})") from error


def _tabbed(line: str) -> LabelledPair:
    cells: Sequence[str] = line.rstrip("\r").split("\t")
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} columns, where {', '.join(COLUMNS)} are wanted")
    label, sort, kind, language, domain, query, candidate = cells
    if (label, sort) not in SORTS:
        raise ValueError(f"label {label!r} with sort {sort!r}: there is no such pair")
    if not query.strip() or not candidate.strip():
        raise ValueError("a text is empty")
    return LabelledPair(query, candidate, label == "=", f"{SORTS[label, sort]}:{kind}", language, domain)


def _json(line: str) -> LabelledPair:
    try:
        found: Any = json.loads(line)
        pair = LabelledPair(
            found["query"],
            found["candidate"],
            found["same"],
            found["stratum"],
            found.get("language", ""),
            found.get("domain", ""),
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON ({error.msg})") from error
    except (KeyError, TypeError) as error:
        raise ValueError("an object with query, candidate, same and stratum is wanted") from error
    _check(pair)
    return pair


def _check(pair: LabelledPair) -> None:
    texts = (pair.query, pair.candidate, pair.stratum, pair.language, pair.domain)
    if not isinstance(pair.same, bool) or not all(isinstance(text, str) for text in texts):
        raise ValueError("query, candidate, stratum, language and domain are texts, same is true or false")
    if pair.group not in GROUPS:
        raise ValueError(f"stratum {pair.stratum!r} must begin with one of {', '.join(GROUPS)}")
    if pair.same != (pair.group == "para"):
        raise ValueError(f"same is {pair.same} in stratum {pair.stratum!r}")
