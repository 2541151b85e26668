"""Which shard owns a partition, and what all shards say together."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from serve_app.cache.entry import CacheEntry, CacheStats
from serve_app.cache.shards import Page, Place, Shards, merged_page, merged_stats
from serve_app.openai.answers import Answer, Usage

OWNERS = [2, 3, 2, 0, 1, 0, 3, 1]
PARTITIONS = [f"partition {number}" for number in range(2000)]


def test_partitions_are_spread_evenly() -> None:
    for count in (1, 2, 3, 8):
        owners = [Shards(count).owner(partition) for partition in PARTITIONS]
        shares = [owners.count(shard) / len(owners) for shard in range(count)]
        assert sum(shares) == pytest.approx(1)
        assert all(abs(share - 1 / count) < 0.04 for share in shares)


def test_one_more_shard_takes_partitions_and_moves_no_other() -> None:
    before, after = Shards(3), Shards(4)
    moved = [each for each in PARTITIONS if before.owner(each) != after.owner(each)]
    assert {after.owner(each) for each in moved} == {3}
    assert len(moved) / len(PARTITIONS) == pytest.approx(1 / 4, abs=0.04)


def test_the_owner_of_a_partition_is_the_same_in_every_version() -> None:
    """Folders outlive a version: another hash would not find what they hold."""
    assert [Shards(4).owner(f"p{number}") for number in range(8)] == OWNERS


def test_a_bound_is_divided_only_among_stores_of_their_own() -> None:
    assert [Place(0, 3).part(10), Place(0, 3, shared=True).part(10), Place().part(10)] == [4, 10, 10]


def entry(number: int) -> CacheEntry:
    return CacheEntry(UUID(int=number), "t", "m", "p", "q", Answer("m", "a", Usage(1, 1, 2)), 0.0, 1.0)


def page(held: list[int], after: UUID | None, limit: int, notes: frozenset[int]) -> Page:
    """As a store gives it: what is no entry takes a place on the page and is left out."""
    ids = sorted(number for number in held if after is None or number >= after.int)
    shown = [entry(number) for number in ids[:limit] if number not in notes]
    return shown, UUID(int=ids[limit]) if len(ids) > limit else None


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_over_the_pages_of_all_shards_gives_every_entry_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    numbers = rng.sample(range(1, 10_000), 137)
    notes = frozenset(rng.sample(numbers, 5))
    held: list[list[int]] = [[], [], []]
    for number in numbers:
        held[rng.randrange(3)].append(number)
    found: list[int] = []
    after: UUID | None = None
    while True:
        entries, after = merged_page([page(each, after, 10, notes) for each in held], 10)
        assert len(entries) <= 10
        found += [each.entry_id.int for each in entries]
        if after is None:
            break
    assert found == sorted(set(numbers) - notes)


ONE = CacheStats(3, 5, "/a", None, {"guard": 1}, {"limit": 0.1, "audits": 2})
TWO = CacheStats(4, 9, "/b", "the disk is full", {"guard": 2, "verifier": 1}, {"limit": 0.2, "audits": 3})


def test_figures_of_all_shards_are_one_page() -> None:
    assert merged_stats([ONE], shared=False) == ONE
    both = merged_stats([ONE, TWO], shared=False)
    assert (both.entries, both.epoch, both.path) == (7, 9, "/a, /b")
    assert both.error == "shard 2: the disk is full"
    assert both.refused == {"guard": 3, "verifier": 1}
    assert both.bound == {"limit": 0.2, "audits": 5}


def test_a_shared_store_is_counted_once() -> None:
    assert merged_stats([ONE, TWO], shared=True).entries == 4
