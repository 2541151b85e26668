"""What docs/architecture.md names: the modules in the rows of "Who owns what"."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def modules_in_rows(page: str) -> list[tuple[list[str], str]]:
    """The rows of "Who owns what" begin with folders; each module is relative to one of them."""
    table = page.partition("## Who owns what")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return [
        (re.findall(r"`([\w/]+/)`", folders), module)
        for folders, modules in rows
        for module in re.findall(r"`([\w/]+\.py)`", modules)
    ]


def listed_modules() -> list[Path]:
    """The files that the page names, in its order; a file that it names twice is here twice."""
    page = PAGE.read_text(encoding="utf-8")
    return [
        ROOT / folder / module
        for folders, module in modules_in_rows(page)
        for folder in folders
        if (ROOT / folder / module).is_file()
    ]
