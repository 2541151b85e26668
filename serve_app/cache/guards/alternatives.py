"""Guard against another member of the same class: Monday for Tuesday, guitar for piano, a nurse for a
pilot."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from serve_app.cache.guards.compare import entities
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_UNIT = "unit-"


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether each text has a member of one class that the other text lacks."""
        if a.vocabulary == b.vocabulary:
            return False
        ours, theirs = entities(a, lists.alternatives), entities(b, lists.alternatives)
        shared = _groups(ours - theirs) & _groups(theirs - ours)
        if a.quantities and b.quantities and a.quantities != b.quantities:
            return any(not group.startswith(_UNIT) for group in shared)
        return bool(shared)

    return objects


def _groups(members: AbstractSet[str]) -> set[str]:
    return {member.partition(":")[0] for member in members}
