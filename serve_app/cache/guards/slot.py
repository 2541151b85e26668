"""Guard against two texts that differ in one place only: "a recipe for X", "a recipe for Y"."""

from __future__ import annotations

from serve_app.cache.guards.compare import same_word
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.quantities import is_number
from serve_app.cache.guards.residue import accounts_for

_LONGEST = 3
_SHORTEST_FRAME = 3


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether one to three content words after an article or preposition, or at the end, were
        replaced."""
        start, left, right = difference(a.words, b.words)
        if not 0 < len(left) <= _LONGEST or not 0 < len(right) <= _LONGEST:
            return False
        frame = len(a.words) - len(left)
        if frame < _SHORTEST_FRAME or not lists.function_words.isdisjoint(left + right):
            return False
        before = a.words[start - 1] if start else ""
        at_end = start == frame and before not in lists.grammar["degrees"]
        if any(is_number(word) for word in left + right):
            return False
        return (before in lists.grammar["leads"] or at_end) and not _alike(left, right, lists)

    return objects


def difference(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Where two sequences begin to differ, and what lies between their common start and common end."""
    shorter = min(len(a), len(b))
    start = 0
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return start, a[start : len(a) - end], b[start : len(b) - end]


def _alike(left: tuple[str, ...], right: tuple[str, ...], lists: WordLists) -> bool:
    if "".join(left) == "".join(right):
        return True
    if (len(left) == 1 and left[0] == _initials(right)) or (len(right) == 1 and right[0] == _initials(left)):
        return True
    return any(
        same_word(one, other, lists.base) or accounts_for(one, other, lists)
        for one in left
        for other in right
    )


def _initials(words: tuple[str, ...]) -> str:
    return "".join([word[0] for word in words])
