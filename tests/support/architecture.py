"""What docs/architecture.md names: the folders and modules in the rows of "Who owns what"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


@dataclass(frozen=True)
class Row:
    """A row begins with its folders. Names in its text are relative to one of them, to a folder below them
    that the text names, or to the root."""

    folders: tuple[str, ...]
    below: tuple[str, ...]
    modules: tuple[str, ...]

    def places(self) -> list[Path]:
        """Where its modules may be."""
        return [ROOT, *(ROOT / folder for folder in self.folders), *self.inner()]

    def inner(self) -> list[Path]:
        """The folders that its text names."""
        return [path for name in self.below for path in self._found(name) if path.is_dir()]

    def files(self, module: str) -> list[Path]:
        """What a name stands for: none if there is no such file, several if two folders have one."""
        return [place / module for place in self.places() if (place / module).is_file()]

    def lost(self) -> list[str]:
        """Names that stand for nothing."""
        folders = [name for name in self.folders if not (ROOT / name).is_dir()]
        below = [name for name in self.below if not any(path.is_dir() for path in self._found(name))]
        return [*folders, *below, *(module for module in self.modules if not self.files(module))]

    def _found(self, name: str) -> list[Path]:
        return [ROOT / name, *(ROOT / folder / name for folder in self.folders)]


def rows(page: str) -> list[Row]:
    table = page.partition("## Who owns what")[2].partition("\n## ")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return [
        Row(tuple(_folders(first)), tuple(_folders(text)), tuple(re.findall(r"`([\w/]+\.py)`", text)))
        for first, text in cells
    ]


def _folders(cell: str) -> list[str]:
    return re.findall(r"`([\w/]+)/`", cell)


def named_modules() -> set[Path]:
    """The files that the page's rows name."""
    page = rows(PAGE.read_text(encoding="utf-8"))
    return {path for row in page for module in row.modules for path in row.files(module)}


def named_folders() -> set[Path]:
    """The folders that the page's rows name, by themselves or with a module in them."""
    page = rows(PAGE.read_text(encoding="utf-8"))
    own = {ROOT / folder for row in page for folder in row.folders}
    return own | {path for row in page for path in row.inner()} | {path.parent for path in named_modules()}
