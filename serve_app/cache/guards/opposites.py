"""A word of one text has its opposite in the other."""

from __future__ import annotations

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.polarity import is_negated

ALIGNED = 0.4
"""Of two texts with fewer words in common an opposite may turn round something that only one of them says."""


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """There is an odd number of opposites, and no "not" compensates for it."""
        if a.overlap(b) < ALIGNED:
            return False
        return is_negated(a, b, lists) == (False, True)

    return objects
