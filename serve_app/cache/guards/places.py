"""Finds the preposition that leads to a word, and whether two words have exchanged their prepositions."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import combinations

from serve_app.cache.guards.contract import Text
from serve_app.cache.guards.lists import WordLists

_MOST = 12


def marker(text: Text, index: int, phrase: AbstractSet[str], lists: WordLists) -> str:
    """The preposition before the phrase that ends at ``index``: "" without one, "and" in a list."""
    determiners = lists.grammar["determiners"]
    index -= 1
    while index >= 0 and (text.words[index] in determiners or text.words[index] in phrase):
        index -= 1
    before = text.words[index] if index >= 0 else ""
    if before in lists.grammar["coordinators"] or "," in text.gaps[index + 1] or "/" in text.gaps[index + 1]:
        return "and"
    return before if before in lists.grammar["prepositions"] else ""


def are_exchanged(shared: AbstractSet[str], a: Text, b: Text, lists: WordLists) -> bool:
    """Whether two of the ``shared`` words have each other's preposition in the other text."""
    if len(shared) > _MOST or is_symmetric(a, lists) or is_symmetric(b, lists):
        return False
    ours = {word: marker(a, a.words.index(word), shared, lists) for word in shared}
    theirs = {word: marker(b, b.words.index(word), shared, lists) for word in shared}
    return any(
        ours[one] != ours[other]
        and ours[one] == theirs[other]
        and ours[other] == theirs[one]
        and "and" not in (ours[one], ours[other])
        for one, other in combinations(sorted(shared), 2)
    )


def is_symmetric(text: Text, lists: WordLists) -> bool:
    """Whether a word such as "difference" or "married" makes the order of two things meaningless."""
    return not lists.symmetric.isdisjoint(text.vocabulary)
