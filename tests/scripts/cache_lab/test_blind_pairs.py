"""The blind pairs stay as they were sealed, and apart from what the verifier learned from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cache_lab.pairs import WRITTEN_PAIRS, read_pairs

ROOT = Path(__file__).parents[3]
BLIND = ROOT / "scripts" / "cache_lab" / "data" / "blind"


@pytest.mark.parametrize("file", ["first.tsv", "second.tsv", "third.tsv", "fourth.tsv"])
def test_the_docs_name_the_checksum_of_a_blind_file(file: str) -> None:
    digest = hashlib.sha256((BLIND / file).read_bytes()).hexdigest()
    assert digest in (ROOT / "docs" / "cache.md").read_text(encoding="utf-8")


def test_no_blind_text_is_in_the_training_pairs() -> None:
    def texts(folder: Path) -> set[str]:
        return {text for pair in read_pairs(folder) for text in (pair.query, pair.candidate)}

    assert len(read_pairs(BLIND)) == 1724
    assert texts(BLIND) & texts(WRITTEN_PAIRS) == set()
