"""Promptly's own format: YAML or JSON with `cases`, or JSON lines with one case each.

The first line of JSON lines may have `name`, `description` and `defaults` instead of a case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_app.evaluation.document import Document, Keys
from serve_app.evaluation.formats.contract import Format, rows

HEAD = frozenset({"name", "description", "defaults"})
CASE = frozenset({"prompt", "messages", "variables"})


def matches(document: Document) -> bool:
    if isinstance(document.value, dict):
        return "cases" in document.value
    lines = rows(document)
    return lines is not None and any("id" in row and not CASE.isdisjoint(row) for row in lines)


def convert(document: Document, path: Path) -> Document:
    value = document.value
    if not isinstance(value, list):
        return document
    first = value[0] if value else None
    head: dict[str, Any] = first if isinstance(first, dict) and first and first.keys() <= HEAD else {}
    cases = value[1:] if head else value
    lines: dict[Keys, int] = {("cases", number - bool(head)): line for (number,), line in _numbered(document)}
    return Document(document.source, {**head, "cases": cases}, lines | {(): 1})


def _numbered(document: Document) -> list[tuple[tuple[int], int]]:
    return [((keys[0],), line) for keys, line in document.lines.items() if keys and isinstance(keys[0], int)]


OWN = Format("promptly", matches, convert)
