"""Recall, false share and their intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cache_lab.pairs import LabelledPair, read_pairs
from cache_lab.rates import AS_IT_IS, TRAFFIC, Rates, rates, wilson

GOOD = {"query": "a", "candidate": "b", "same": True, "stratum": "para:x", "source": "own"}


def found(para: int, diff: int, hard: int) -> Rates:
    return Rates({"para": para, "diff": diff, "hard": hard}, {"para": 100, "diff": 100, "hard": 100})


def test_the_false_share_weighs_each_group_as_the_mix_does() -> None:
    share = found(50, 2, 20).false_share(TRAFFIC)
    wrong = 0.65 * 0.02 + 0.05 * 0.20
    assert share.value == pytest.approx(wrong / (wrong + 0.30 * 0.5))
    assert share.low < share.value < share.high


def test_as_the_file_is_counts_pairs() -> None:
    assert found(50, 10, 40).false_share(AS_IT_IS).value == pytest.approx(0.5)


def test_nothing_that_hits_is_nothing_wrong() -> None:
    assert found(0, 0, 0).false_share(TRAFFIC).value == 0


def test_rates_count_hits_by_group() -> None:
    pairs = [LabelledPair("a", "b", True, "para:x"), LabelledPair("c", "d", False, "hard:y")]
    assert rates(pairs, [True, False]).recall().value == 1
    assert rates(pairs, [True, True]).rate("hard") == 1
    assert rates(pairs, [True, True]).rate("diff") == 0


def test_wilsons_interval_of_a_known_example() -> None:
    interval = wilson(2, 100)
    assert (interval.low, interval.high) == (pytest.approx(0.0055, abs=1e-4), pytest.approx(0.0700, abs=1e-4))
    assert wilson(0, 0) == wilson(0, 0).__class__(0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "an object with"),
        ("{}", "an object with"),
        (json.dumps(GOOD | {"same": 1}), "same is true or false"),
        (json.dumps(GOOD | {"query": 3}), "are texts"),
        (json.dumps(GOOD | {"stratum": "odd:x"}), "must begin with one of para, diff, hard"),
        (json.dumps(GOOD | {"same": False}), "same is False in stratum 'para:x'"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path, json.dumps(GOOD), line)
    with pytest.raises(ValueError, match=complaint) as error:
        read_pairs(path)
    assert f"{path}:2: " in str(error.value)


def test_empty_lines_are_skipped(tmp_path: Path) -> None:
    assert len(read_pairs(write(tmp_path, json.dumps(GOOD), "", json.dumps(GOOD)))) == 2


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(lines))
    return path
