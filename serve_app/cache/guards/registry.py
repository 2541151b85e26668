"""All guards, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from serve_app.cache.guards import (
    alternatives,
    edit,
    identifiers,
    language,
    modifier,
    names,
    negation,
    numbers,
    opposites,
    question_word,
    roles,
    signs,
    slot,
    temporal,
)
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.residue import residue

GuardMaker = Callable[[WordLists], Guard]

GUARDS: Mapping[str, GuardMaker] = MappingProxyType(
    {
        "numbers": numbers.guard,
        "identifiers": identifiers.guard,
        "language": language.guard,
        "negation": negation.guard,
        "names": names.guard,
        "opposites": opposites.guard,
        "alternatives": alternatives.guard,
        "temporal": temporal.guard,
        "question_word": question_word.guard,
        "roles": roles.guard,
        "modifier": modifier.guard,
        "slot": slot.guard,
        "signs": signs.guard,
        edit.NAME: edit.guard,
    }
)
"""The guards by the reason that headers and metrics show; cheap and language-independent guards come
first."""


class Guards:
    """Every guard of ``GUARDS``, built with the word lists."""

    def __init__(self, lists: WordLists, makers: Mapping[str, GuardMaker] = GUARDS) -> None:
        self._lists = lists
        self._guards = tuple((name, make(lists)) for name, make in makers.items())

    def objection(self, a: Text, b: Text) -> str | None:
        """The name of the first guard that objects, or ``None``."""
        return next((name for name, objects in self._guards if objects(a, b)), None)

    def may_be_synonyms(self, a: Text, b: Text) -> bool:
        """Whether the texts differ in one plain word each: a synonym that no list has, or another thing."""
        rest = residue(a, b, self._lists)
        return rest is not None and edit.is_one_word(rest)

    def evidence(self, a: Text, b: Text) -> Mapping[str, bool]:
        """The result of every guard, in the guards' order."""
        return {name: objects(a, b) for name, objects in self._guards}

    def silence(self) -> Mapping[str, bool]:
        """The evidence of a pair to which no guard objects."""
        return dict.fromkeys((name for name, _ in self._guards), False)
