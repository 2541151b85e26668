"""Guard against a "not" that only one of the texts has."""

from __future__ import annotations

from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.polarity import is_negated

ALIGNED = 0.4
"""Two texts with a smaller share of words in common may say the same in different ways, with or without a
"not"."""


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether the numbers of negations differ by an odd number, and no opposite compensates for it."""
        if a.overlap(b) < ALIGNED:
            return False
        return is_negated(a, b, lists) == (True, False)

    return objects
