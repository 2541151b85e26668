"""Guard against another number, date, time or amount."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from serve_app.cache.guards.compare import MOST_PAIRS, are_yes_no
from serve_app.cache.guards.contract import Guard, Text
from serve_app.cache.guards.lists import WordLists
from serve_app.cache.guards.quantities import Quantity

_UNITLESS = frozenset({"", "ordinal"})
_POUNDS = frozenset({"mass", "sterling"})


def guard(lists: WordLists) -> Guard:
    def objects(a: Text, b: Text) -> bool:
        """Whether each text has a quantity that the other lacks, in value or in unit; or both want a yes or
        no, and only one has quantities ("Did it cost less than five lives?", "Did it cost lives?")."""
        if a.quantities == b.quantities:
            return False
        if a.quantities and b.quantities:
            return _differ(a, b)
        return are_yes_no(a, b, lists) and any(not one.weak for one in a.quantities | b.quantities)

    return objects


def _differ(a: Text, b: Text) -> bool:
    left, right = a.quantities - b.quantities, b.quantities - a.quantities
    if len(left) * len(right) > MOST_PAIRS:
        return True
    left, right = _missing(left, b.quantities), _missing(right, a.quantities)
    return bool(left) and bool(right) and not all(one.weak for one in (*left, *right))


def say_the_same(ours: AbstractSet[Quantity], theirs: AbstractSet[Quantity]) -> bool:
    """Whether each quantity of either text is also in the other."""
    return not _missing(ours, theirs) and not _missing(theirs, ours)


def _missing(ours: Iterable[Quantity], theirs: Iterable[Quantity]) -> frozenset[Quantity]:
    return frozenset([one for one in ours if not any(same(one, other) for other in theirs)])


def same(one: Quantity, other: Quantity) -> bool:
    """Whether both are equal in value and unit; a bare number equals the same number in any unit."""
    if one.dimension == other.dimension:
        return _close(one.value, other.value) and one.written == other.written
    kinds = {one.dimension, other.dimension}
    if kinds & _UNITLESS or kinds == _POUNDS:
        return "date" not in kinds and (_close(one.bare, other.bare) or _is_share(one, other))
    return False


def _is_share(one: Quantity, other: Quantity) -> bool:
    """Whether they are a fraction and its percentage, such as a half and 50 %."""
    if one.dimension == "":
        one, other = other, one
    return one.dimension == "percent" and _close(one.value, 100 * other.value)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
