"""What one gateway's memory gives to another."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.memory import Memory
from serve_app.cache.entry import CacheEntry, Hit
from serve_app.cache.expiry import expiry_of
from serve_app.cache.shards import Shards
from serve_app.openai.answers import Answer, Usage
from serve_app.request.cache_controls import CacheControls
from serve_app.settings import CacheSettings

PARTITION = "p"


def memory(shards: int = 1) -> Memory:
    return Memory(10, expiry_of(CacheSettings()), CacheCounters(misses=1), shards=Shards(shards))


def entry(age_s: float = 0.0) -> CacheEntry:
    made = time.time() - age_s
    answer = Answer("m", "a", Usage(1, 1, 2))
    return CacheEntry(uuid4(), "t", "m", PARTITION, "q", answer, made, made + 60)


@pytest.mark.parametrize("shards", [1, 3])
def test_an_entry_is_given_with_the_epoch_of_its_shard(shards: int) -> None:
    one, two, stored = memory(shards), memory(shards), entry()
    one.put(stored)
    assert one.remembered(stored.entry_id) is None  # a purge might have come that is not known yet
    for shard in range(shards):
        one.follow(10 + shard, shard)
    owner = Shards(shards).owner(PARTITION)
    hit = one.remembered(stored.entry_id)
    assert hit == Hit(stored, epoch=10 + owner)
    assert hit is not None
    assert two.take_in(hit, CacheControls())
    assert two.remembered(stored.entry_id) == hit


def test_what_was_purged_here_is_not_taken_from_a_gateway_that_does_not_know_it() -> None:
    one, two, stored = memory(), memory(), entry()
    one.follow(10, 0)
    two.follow(11, 0)
    one.put(stored)
    hit = one.remembered(stored.entry_id)
    assert hit is not None
    assert not two.take_in(hit, CacheControls())
    assert two.remembered(stored.entry_id) is None


def test_a_purge_that_only_the_other_gateway_knows_empties_this_memory() -> None:
    one, two, old, new = memory(), memory(), entry(), entry()
    two.follow(10, 0)
    two.put(old)
    one.follow(11, 0)
    one.put(new)
    hit = one.remembered(new.entry_id)
    assert hit is not None
    assert two.take_in(hit, CacheControls())
    assert two.remembered(old.entry_id) is None


def test_an_older_answer_than_the_request_accepts_is_not_taken() -> None:
    one, two, stored = memory(), memory(), entry(age_s=30)
    one.follow(10, 0)
    one.put(stored)
    hit = one.remembered(stored.entry_id)
    assert hit is not None
    assert not two.take_in(hit, CacheControls(max_age_s=10.0))
