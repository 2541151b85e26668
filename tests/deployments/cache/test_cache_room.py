"""The bounds of the cache, on a real store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from deployments.cache.bounds import CacheRoom
from deployments.cache.store import CacheStore
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import ENTRY_OVERHEAD, CacheEntry
from serve_app.cache.eviction import Bounds
from serve_app.openai.answers import Answer, Usage


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CacheStore]:
    store = await EdgeStore.open(str(tmp_path), 4, "test")
    yield store
    await store.close()


def entry(tokens: int = 10, **changes: object) -> CacheEntry:
    now = time.time()
    answer = Answer("m", "a" * 100, Usage(1, tokens, tokens + 1))
    base = CacheEntry(uuid4(), "t", "m", "p", "question", answer, now, now + 60)
    return replace(base, **changes)  # type: ignore[arg-type]


async def fill(store: CacheStore, room: CacheRoom, *entries: CacheEntry) -> None:
    for one in entries:
        await store.put(room.valued(one))
        await room.take(store, one)


async def held(store: CacheStore, *entries: CacheEntry) -> list[bool]:
    return [await store.get(one.entry_id) is not None for one in entries]


async def test_bytes_are_bounded(store: CacheStore) -> None:
    room = CacheRoom(Bounds(1000, 4 * (ENTRY_OVERHEAD + 200)))
    await fill(store, room, *(entry() for _ in range(10)))
    usage = (await store.usage())["t"]
    assert 3 <= usage.entries <= 4
    assert usage.size <= 4 * (ENTRY_OVERHEAD + 200)


async def test_a_quota_bounds_each_tenant_by_itself(store: CacheStore) -> None:
    room = CacheRoom(Bounds(1000, tenant_entries=3))
    await fill(store, room, *(entry(tenant=tenant) for tenant in "aabbabbaab"))
    assert {tenant: volume.entries for tenant, volume in (await store.usage()).items()} == {"a": 3, "b": 3}


async def test_what_is_used_stays_and_what_is_not_goes(store: CacheStore) -> None:
    room = CacheRoom(Bounds(3))
    stored = [entry() for _ in range(3)]
    await fill(store, room, *stored)
    room.used({stored[0].entry_id: 2, stored[2].entry_id: 1})
    await room.note_uses(store)
    await fill(store, room, entry(tokens=15))
    assert await held(store, *stored) == [True, False, True]


async def test_what_was_used_long_ago_goes_at_last(store: CacheStore) -> None:
    room = CacheRoom(Bounds(3))
    once_popular = entry()
    await fill(store, room, once_popular)
    room.used({once_popular.entry_id: 4})
    await room.note_uses(store)
    for number in range(40):
        await fill(store, room, entry(tokens=10 + number % 3))
    assert await held(store, once_popular) == [False]


async def test_uses_of_an_entry_that_is_gone_are_forgotten(store: CacheStore) -> None:
    room = CacheRoom(Bounds(3))
    room.used({UUID(int=7): 1})
    await room.note_uses(store)
    assert await store.count() == 0


async def test_entries_of_others_are_seen_at_the_next_count(store: CacheStore) -> None:
    room = CacheRoom(Bounds(5))
    await fill(store, room, entry())
    for _ in range(6):
        await store.put(entry(value=1e-9))
    await room.recount(store)
    await fill(store, room, entry(tokens=50))
    assert await store.count() == 5
