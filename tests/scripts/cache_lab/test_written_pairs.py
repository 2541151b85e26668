"""The written pairs: they can be read, and their README tells what they hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cache_lab.pairs import WRITTEN_PAIRS, LabelledPair, read_pairs


@pytest.mark.parametrize("file", sorted(WRITTEN_PAIRS.glob("*.tsv")), ids=lambda file: file.stem)
def test_the_readme_counts_are_the_files(file: Path) -> None:
    pairs = read_pairs(file)
    groups = Counter(pair.group for pair in pairs)
    counts = f"| {len(pairs)} | {groups['para']} | {groups['diff']} | {groups['hard']} |"
    assert f"| `{file.name}` {counts}" in (WRITTEN_PAIRS / "README.md").read_text(encoding="utf-8")


def test_a_folder_is_read_as_one_list_of_many_kinds_and_languages() -> None:
    pairs = read_pairs(WRITTEN_PAIRS)
    assert len(pairs) >= 6000
    assert len({pair.stratum for pair in pairs if pair.group == "hard"}) >= 40
    assert len({pair.language for pair in pairs}) == 11
    assert sum(pair.language != "en" for pair in pairs) >= 1200


@pytest.mark.parametrize("file", sorted(WRITTEN_PAIRS.glob("*.tsv")), ids=lambda file: file.stem)
def test_an_author_wrote_no_pair_twice_and_no_text_as_its_own_partner(file: Path) -> None:
    seen = Counter(frozenset((pair.query, pair.candidate)) for pair in read_pairs(file))
    assert set(seen.values()) == {1}
    assert all(len(texts) == 2 for texts in seen)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("=\tparaphrase\tx\ten\tit\tone", "6 columns"),
        ("=\thard\tx\ten\tit\tone\ttwo", "there is no such pair"),
        ("!\thard\tx\ten\tit\tone\t ", "a text is empty"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"=\tparaphrase\tx\ten\tit\tone\ttwo\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=complaint) as error:
        read_pairs(path)
    assert f"{path}:2: " in str(error.value)


def test_overlap_is_the_share_of_words_in_common() -> None:
    pair = LabelledPair("Reset my password", "reset a password", True, "para:x")
    assert pair.overlap == pytest.approx(0.5)
    assert pair.band == "overlap 0.5–0.7"
    assert LabelledPair("a", "a", True, "para:x").band == "overlap ≥ 0.7"
