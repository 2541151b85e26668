"""Labelled pairs of texts: whether an answer to one text serves for the other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

GROUPS = ("para", "diff", "hard")
"""Paraphrases, ordinary different questions, and hard negatives."""

OWN_PAIRS = Path(__file__).parent / "own_pairs" / "pairs.jsonl"
"""The project's own pairs; ``README.md`` beside them says how they were made."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """``same``: an answer to one text serves for the other. ``stratum``: ``group:kind``."""

    query: str
    candidate: str
    same: bool
    stratum: str

    @property
    def group(self) -> str:
        return self.stratum.partition(":")[0]


def read_pairs(path: Path) -> list[LabelledPair]:
    """The pairs of a file of JSON lines.

    Raises:
        ValueError: a line is not a pair; the message names file and line.
    """
    return [_pair(path, number, line) for number, line in enumerate(_lines(path), 1) if line.strip()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason})") from error


def _pair(path: Path, number: int, line: str) -> LabelledPair:
    where = f"{path}:{number}"
    try:
        found = json.loads(line)
        pair = LabelledPair(found["query"], found["candidate"], found["same"], found["stratum"])
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: no JSON ({error.msg})") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where}: an object with query, candidate, same and stratum is wanted") from error
    if not isinstance(pair.same, bool) or not all(
        isinstance(text, str) for text in (pair.query, pair.candidate, pair.stratum)
    ):
        raise ValueError(f"{where}: query, candidate and stratum are texts, same is true or false")
    if pair.group not in GROUPS:
        raise ValueError(f"{where}: stratum {pair.stratum!r} must begin with one of {', '.join(GROUPS)}")
    if pair.same != (pair.group == "para"):
        raise ValueError(f"{where}: same is {pair.same} in stratum {pair.stratum!r}")
    return pair
