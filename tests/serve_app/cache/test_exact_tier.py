"""The exact tier holds the newest entries, by key, until they expire."""

from __future__ import annotations

from collections import OrderedDict
from random import Random
from uuid import UUID

import pytest
from samples import make_entry

from serve_app.cache.entry import CacheEntry, Selection
from serve_app.cache.exact import ExactTier


def tier_of(*entries: CacheEntry, capacity: int = 10) -> ExactTier:
    tier = ExactTier(capacity)
    for entry in entries:
        tier.put(entry)
    return tier


def held(tier: ExactTier, numbers: range) -> list[int]:
    return [number for number in numbers if tier.get(UUID(int=number), 0.0) is not None]


def test_an_entry_is_found_by_its_key_alone() -> None:
    entry = make_entry(1)
    tier = tier_of(entry)
    assert tier.get(UUID(int=1), 0.0) is entry
    assert tier.get(UUID(int=2), 0.0) is None


def test_it_never_holds_more_than_its_capacity() -> None:
    tier = ExactTier(3)
    for number in range(20):
        tier.put(make_entry(number))
        assert len(tier) == min(number + 1, 3)
    assert held(tier, range(20)) == [17, 18, 19]


def test_an_entry_that_was_read_outlives_one_that_was_not() -> None:
    tier = tier_of(make_entry(1), make_entry(2), capacity=2)
    tier.get(UUID(int=1), 0.0)
    tier.put(make_entry(3))
    assert held(tier, range(5)) == [1, 3]


def test_an_entry_that_was_written_again_is_new_and_replaces_the_old() -> None:
    tier = tier_of(make_entry(1), make_entry(2), capacity=2)
    again = make_entry(1, text="again")
    tier.put(again)
    tier.put(make_entry(3))
    assert held(tier, range(5)) == [1, 3]
    assert tier.get(UUID(int=1), 0.0) is again


def test_it_forgets_as_a_list_in_order_of_use_would() -> None:
    choose, tier = Random(4), ExactTier(5)
    model: OrderedDict[int, None] = OrderedDict()
    for _ in range(2000):
        number = choose.randrange(12)
        if choose.random() < 0.5:
            tier.put(make_entry(number))
            model[number] = None
        found = tier.get(UUID(int=number), 0.0) is not None
        assert found == (number in model)
        if found:
            model.move_to_end(number)
        while len(model) > 5:
            model.popitem(last=False)
        assert len(tier) == len(model)


def test_an_expired_entry_is_not_found_and_not_kept() -> None:
    tier = tier_of(make_entry(1, expires_at=100.0))
    assert tier.get(UUID(int=1), 99.999) is not None
    assert tier.get(UUID(int=1), 100.0) is None
    assert len(tier) == 0


def test_clear_drops_everything() -> None:
    tier = tier_of(make_entry(1), make_entry(2))
    tier.clear()
    assert len(tier) == 0
    assert held(tier, range(5)) == []


ENTRIES = (
    make_entry(1, tenant="t", model="m", tags=("red", "blue")),
    make_entry(2, tenant="t", model="n", tags=("red",)),
    make_entry(3, tenant="u", model="m"),
)


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(entry_id=UUID(int=2)), [1, 3]),
        (Selection(tenant="t"), [3]),
        (Selection(model="m"), [2]),
        (Selection(tag="red"), [3]),
        (Selection(tag="blue"), [2, 3]),
        (Selection(tag="re"), [1, 2, 3]),
        (Selection(tenant="t", model="m"), [2, 3]),
        (Selection(tenant="u", tag="red"), [1, 2, 3]),
        (Selection(entry_id=UUID(int=3), tenant="t"), [1, 2, 3]),
        (Selection(tenant=""), [1, 2, 3]),
        (Selection(tag=""), [1, 2, 3]),
    ],
    ids=str,
)
def test_remove_drops_what_fits_every_part_of_the_selection(selection: Selection, left: list[int]) -> None:
    tier = tier_of(*ENTRIES)
    assert tier.remove(selection) == len(ENTRIES) - len(left)
    assert held(tier, range(5)) == left


def test_a_selection_of_nothing_in_particular_fits_everything() -> None:
    assert all(Selection().fits(entry) for entry in ENTRIES)
