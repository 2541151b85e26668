"""Decides when files of prompts are gone for good, and not only being replaced."""

from __future__ import annotations

from collections.abc import Collection


class Gone:
    """Editors and version control replace a file by removing it first. Without its `prompt.yaml` a prompt
    would be everybody's for a moment, and without `labels.yaml` no label would be known. So files are gone
    only if two looks in turn miss the same ones."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._missed: frozenset[str] = frozenset()

    def is_sure(self, names: Collection[str]) -> bool:
        """Whether the folder is as a look found it, with files of these names. ``False``: look again."""
        missed = self._known.difference(names)
        if missed and missed != self._missed:
            self._missed = missed
            return False
        self._known, self._missed = frozenset(names), frozenset()
        return True
