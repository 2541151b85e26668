"""What a format is, and what its readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.errors import SuiteError
from serve_app.evaluation.document import Document, Keys


@dataclass(frozen=True, slots=True)
class Format:
    """``matches``: whether a file's content looks like it. ``convert`` gives the content in the shape of a
    suite, and raises ``SuiteError`` for what it cannot read; the path is for files that stand beside it."""

    name: str
    matches: Callable[[Document], bool]
    convert: Callable[[Document, Path], Document]


def rows(document: Document) -> list[dict[str, Any]] | None:
    """The content as a list of mappings; ``None`` if it is something else, or empty."""
    value = document.value
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return None
    return value


@dataclass(slots=True)
class Converting:
    """Collects the cases of a foreign file, with their lines, and what cannot be read of it."""

    document: Document
    cases: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[Keys, int] = field(default_factory=lambda: {(): 1})
    problems: list[str] = field(default_factory=list)

    def add(self, case: dict[str, Any], keys: Keys) -> None:
        """``keys``: where the case stands in the foreign file."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.document.lines:
                self.lines["cases", len(self.cases)] = self.document.lines[keys[:length]]
                break
        self.cases.append(case)

    def wrong(self, keys: Keys, what: str) -> None:
        self.problems.append(self.document.problem(keys, what))

    def result(self, name: str, assertions: Sequence[Any] | None = None) -> Document:
        """``assertions``: of cases that have none.

        Raises:
            SuiteError: something could not be read.
        """
        if self.problems:
            raise SuiteError("\n".join(dict.fromkeys(self.problems)))
        defaults: dict[str, Any] = {} if assertions is None else {"assertions": list(assertions)}
        value = {"name": name, "defaults": defaults, "cases": self.cases}
        return Document(self.document.source, value, self.lines)


def first_of(row: dict[str, Any], names: Iterable[str]) -> Any:
    """The value of the first of these names that has one; ``None`` for empty cells, too."""
    return next((row[name] for name in names if row.get(name) not in (None, "", [])), None)


def joined(value: Any) -> str | None:
    """Contexts as one text."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n\n".join(value)
    return value if isinstance(value, str) else None
