"""What docs/architecture.md names: the folders and modules in the rows of "Who owns what"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"

NAME = re.compile(r"`([\w/]+)(/|\.py)`")
GATEWAY = "gateway/"


@dataclass(frozen=True)
class Row:
    """A row begins with a folder. The name of a module is relative to the folder that is named last before
    it, the name of a folder to the root or to the row's first folder; ``gateway/`` is short for
    ``deployments/gateway/``."""

    folders: tuple[Path, ...]
    modules: tuple[Path, ...]

    @property
    def lost(self) -> list[str]:
        """Names that stand for nothing."""
        folders = [path for path in self.folders if not path.is_dir()]
        modules = [path for path in self.modules if not path.is_file()]
        return [str(path.relative_to(ROOT)) for path in (*folders, *modules)]


def rows(page: str) -> list[Row]:
    table = page.partition("## Who owns what")[2].partition("\n## ")[0]
    return [_row(line) for line in table.splitlines() if line.startswith("| `")]


def bare_names(page: str) -> list[str]:
    """Modules without words of their own: a separator follows the name."""
    table = page.partition("## Who owns what")[2].partition("\n## ")[0]
    return re.findall(r"`([\w/]+\.py)`[,;.]", table)


def _row(line: str) -> Row:
    folders: list[Path] = []
    modules: list[Path] = []
    for name, ending in NAME.findall(line):
        if ending == "/":
            folders.append(_folder(name, folders[0] if folders else ROOT))
        else:
            modules.append(folders[-1] / f"{name}.py")
    return Row(tuple(folders), tuple(modules))


def _folder(name: str, first: Path) -> Path:
    path = ROOT / ("deployments" if name.startswith(GATEWAY) else "") / name
    return path if path.is_dir() else first / name


def named_modules() -> set[Path]:
    """The files that the page's rows name."""
    return {path for row in rows(PAGE.read_text(encoding="utf-8")) for path in row.modules}


def named_folders() -> set[Path]:
    """The folders that the page's rows name, by themselves or with a module in them."""
    own = {path for row in rows(PAGE.read_text(encoding="utf-8")) for path in row.folders}
    return own | {path.parent for path in named_modules()}
