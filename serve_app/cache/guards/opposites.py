"""Guard against a word in one text whose opposite is in the other."""

from __future__ import annotations

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.polarity import is_negated

ALIGNED = 0.4
"""In two texts with a smaller share of words in common, an opposite may concern something that only one of
them says."""


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether there is an odd number of opposites, and no "not" compensates for it."""
        if a.overlap(b) < ALIGNED:
            return False
        return is_negated(a, b, lists) == (False, True)

    return objects
