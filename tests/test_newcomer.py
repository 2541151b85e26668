"""Forty changes and the files that each begins in, as two authors found them by reading the code.

They are the examination of docs/architecture.md: CONTRIBUTING.md says how readers did, and how to repeat it.
"""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath

import pytest
from support.architecture import PAGE, listed_modules

ROOT = Path(__file__).parents[1]
LISTED = frozenset(listed_modules())


def changes() -> list[tuple[str, list[str]]]:
    with (ROOT / "tests/newcomer.tsv").open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["change"], row["files"].split(", ")) for row in rows]


def test_there_are_two_examinations_of_twenty() -> None:
    assert len({change for change, _ in changes()}) == 40


@pytest.mark.parametrize(("change", "files"), changes())
def test_the_page_names_the_file_of_each_change(change: str, files: list[str]) -> None:
    for name in files:
        assert (ROOT / name).is_file(), f"{name} is gone: where does {change!r} begin now?"
        folder = PurePosixPath(name).parent
        if folder.name == "console_files":  # pages and scripts: no modules
            assert f"`{folder}/`" in PAGE.read_text(encoding="utf-8")
        else:
            assert ROOT / name in LISTED, f"no row of the page has {name} in its folder"
