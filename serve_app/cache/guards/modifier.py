"""Guard against a word that narrows or judges ("only", "bad", "all") in one of two otherwise equal texts."""

from __future__ import annotations

from serve_app.cache.guards.compare import are_yes_no, exclusive
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists

_LINKS = frozenset({"and", "or"})


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether nothing but modifiers of different classes differs, or "and" became "or"."""
        if a.vocabulary == b.vocabulary:
            return False
        ours, theirs = _modifiers(a, b, lists), _modifiers(b, a, lists)
        left, right = ours - theirs, theirs - ours
        if (
            not (left and right)
            and (left | right).isdisjoint(_telling(a, b, lists))
            and not _links_differ(a, b)
        ):
            return False
        return not any(word not in lists.modifiers for side in exclusive(a, b, lists) for word in side)

    return objects


def _modifiers(text: Text, other: Text, lists: WordLists) -> set[str]:
    words = text.vocabulary - other.vocabulary
    return {name for word in words if (name := lists.modifiers.get(word)) is not None}


def _telling(a: Text, b: Text, lists: WordLists) -> frozenset[str]:
    """The classes that matter if one text has them and the other does not."""
    return lists.one_sided["yes_no" if are_yes_no(a, b, lists) else "always"]


def _links_differ(a: Text, b: Text) -> bool:
    return (a.vocabulary ^ b.vocabulary) & _LINKS == _LINKS
