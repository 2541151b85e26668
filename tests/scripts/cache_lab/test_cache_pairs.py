"""The cache's evaluation pairs are well formed, and their README counts them rightly."""

from __future__ import annotations

import json
import re
from collections import Counter
from statistics import median
from typing import Any

import pytest
from cache_lab.pairs import OWN_PAIRS

FOLDER = OWN_PAIRS.parent
FIELDS = {"query": str, "candidate": str, "same": bool, "source": str, "stratum": str}
KINDS = {
    "para": ("reworded", "surface", "word-order", "template", "slot", "multilingual"),
    "diff": ("other", "random"),
    "hard": (
        "word-order",
        "number",
        "slot",
        "entity",
        "negation",
        "modifier",
        "temporal",
        "contrast",
        "unit",
        "identifier",
        "language",
        "comparative",
        "question-word",
        "multilingual",
    ),
}
STRATA = [f"{group}:{kind}" for group, kinds in KINDS.items() for kind in kinds]
MIN_PAIRS = 360
MIN_PAIRS_PER_STRATUM = 12
# A Chinese character counts as a word: Chinese has no spaces.
WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    lines = (FOLDER / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def texts(pairs: list[dict[str, Any]]) -> list[str]:
    return [pair[side] for pair in pairs for side in ("query", "candidate")]


@pytest.fixture(scope="module")
def readme() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def group(pair: dict[str, Any]) -> str:
    """The part of a pair's stratum before the colon."""
    return str(pair["stratum"]).partition(":")[0]


def overlap(pair: dict[str, Any]) -> float:
    """Share of a pair's different words that are in both texts, 0 to 1."""
    query, candidate = (
        set(re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", pair[side].casefold()))
        for side in ("query", "candidate")
    )
    return len(query & candidate) / len(query | candidate)


def test_every_pair_has_the_known_fields(pairs: list[dict[str, Any]]) -> None:
    for pair in pairs:
        assert {name: type(value) for name, value in pair.items()} == FIELDS, pair
        assert pair["source"] == "own"


def test_every_stratum_is_known_and_large_enough(pairs: list[dict[str, Any]]) -> None:
    counts = Counter(pair["stratum"] for pair in pairs)
    assert counts.keys() == set(STRATA)
    assert not {stratum: n for stratum, n in counts.items() if n < MIN_PAIRS_PER_STRATUM}
    assert len(pairs) >= MIN_PAIRS


def test_the_label_follows_from_the_group(pairs: list[dict[str, Any]]) -> None:
    assert [pair for pair in pairs if pair["same"] != (group(pair) == "para")] == []


def test_the_groups_keep_their_shares(pairs: list[dict[str, Any]]) -> None:
    counts = Counter(map(group, pairs))
    shares = [counts[name] / len(pairs) for name in KINDS]
    assert shares == pytest.approx([0.33, 0.25, 0.42], abs=0.05)


def test_no_text_appears_twice(texts: list[str]) -> None:
    counts = Counter(" ".join(text.casefold().split()) for text in texts)
    assert [text for text, n in counts.items() if n > 1] == []


def test_texts_are_trimmed_and_of_a_question_s_length(texts: list[str]) -> None:
    assert [text for text in texts if text != text.strip() or not 3 <= len(WORD.findall(text)) <= 40] == []


def test_words_in_common_do_not_tell_the_label(pairs: list[dict[str, Any]]) -> None:
    medians = {name: median(overlap(pair) for pair in pairs if group(pair) == name) for name in KINDS}
    assert medians["diff"] < medians["para"] < medians["hard"]


def test_the_readme_counts_are_the_file_s(pairs: list[dict[str, Any]], readme: str) -> None:
    rows = re.findall(r"^\| `(\w+:[\w-]+)` \| (\d+) \|", readme, re.MULTILINE)
    assert len(rows) == len(STRATA)
    assert {stratum: int(n) for stratum, n in rows} == Counter(pair["stratum"] for pair in pairs)
    assert f"holds {len(pairs)} pairs" in readme
    groups = Counter(map(group, pairs))
    assert "Groups: " + ", ".join(f"`{name}` {groups[name]}" for name in KINDS) in readme
