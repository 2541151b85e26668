"""Changes and the files that each begins in, as seven authors found them by reading the code, twenty each.

They are the examination of docs/architecture.md: CONTRIBUTING.md says how readers did, and how to repeat it.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.architecture import named_folders

ROOT = Path(__file__).parents[1]
FOLDERS = frozenset(named_folders())


def changes() -> list[tuple[str, list[str]]]:
    with (ROOT / "tests/newcomer.tsv").open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["change"], row["files"].split(", ")) for row in rows]


def test_there_are_seven_examinations_of_twenty() -> None:
    assert len({change for change, _ in changes()}) == 140


@pytest.mark.parametrize(("change", "files"), changes())
def test_the_page_leads_to_the_folder_of_each_change(change: str, files: list[str]) -> None:
    for name in files:
        assert (ROOT / name).is_file(), f"{name} is gone: where does {change!r} begin now?"
        assert (ROOT / name).parent in FOLDERS, f"no row of the page names the folder of {name}"
