"""Shards of one cache: stores of their own in folders, or one on a server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from support.qdrant_rest import on_a_server
from support.semantic_cache import EmbedderHandle, open_semantic_cache

from deployments.cache.deployment import SemanticCache
from serve_app.cache.entry import CacheEntry, CacheQuery, Hit, Miss, Selection
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings

VECTOR = np.array([1, 0, 0, 0], dtype=np.float32).tobytes()


@asynccontextmanager
async def shards(
    folder: Path, count: int, clock_ns: Any = time.time_ns, **settings: Any
) -> AsyncIterator[list[SemanticCache]]:
    rules = CacheSettings(path=str(folder), decision="similarity", shards=count, **settings)
    async with AsyncExitStack() as stack:
        caches = []
        for shard in range(count):
            cache = await open_semantic_cache(rules, EmbedderHandle(), 60.0, clock_ns, shard=shard)
            stack.push_async_callback(cache.close)
            caches.append(cache)
        yield caches


def entry(**changes: Any) -> CacheEntry:
    now = time.time()
    answer = Answer("m", "a", Usage(1, 1, 2))
    base = CacheEntry(uuid4(), "t", "m", "p", "question", answer, now, now + 60, ("red",), VECTOR)
    return replace(base, **changes)


def query(stored: CacheEntry) -> CacheQuery:
    return CacheQuery(stored.entry_id, stored.partition, stored.text)


def folders(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("shard-*"))


async def test_each_has_a_folder_and_the_first_keeps_that_of_a_cache_of_one(tmp_path: Path) -> None:
    early, late = entry(), entry()
    async with shards(tmp_path, 1) as (only,):
        await only.put(early)
    async with shards(tmp_path, 2) as (first, second):
        await second.put(late)
        assert isinstance(await first.look_up(query(early)), Hit)
        assert isinstance(await first.look_up(query(late)), Miss)
    async with shards(tmp_path, 2) as (_, second):
        assert isinstance(await second.look_up(query(late)), Hit)


async def test_what_was_purged_while_there_were_fewer_shards_does_not_come_back(tmp_path: Path) -> None:
    stored = entry()
    async with shards(tmp_path, 3) as caches:
        await caches[2].put(stored)
    async with shards(tmp_path, 2) as caches:
        for cache in caches:
            await cache.delete(Selection(tag="red"))
        assert folders(tmp_path) == ["shard-2"]
    async with shards(tmp_path, 3) as caches:
        assert isinstance(await caches[2].look_up(query(stored)), Miss)


async def test_bounds_are_divided_among_folders(tmp_path: Path) -> None:
    async with shards(tmp_path, 2, max_entries=10) as caches:
        for cache in caches:
            for _ in range(20):
                await cache.put(entry())
        assert sum([(await cache.stats()).entries for cache in caches]) == 10


async def test_shards_on_one_server_see_the_same_entries_and_each_purges_for_itself(tmp_path: Path) -> None:
    stored = entry()
    async with on_a_server(tmp_path) as at, shards(tmp_path, 2, **at) as (first, second):
        await first.put(stored)
        assert [(await each.stats()).entries for each in (first, second)] == [1, 1]
        before = (await second.stats()).epoch
        assert [await each.delete(Selection(tag="red")) for each in (first, second)] == [1, 0]
        assert (await second.stats()).epoch > before
        await second.put(entry(created_at=stored.created_at))  # from before the purge
        assert (await second.stats()).entries == 0


async def test_shards_on_one_server_fill_it_no_further_than_its_bound(tmp_path: Path) -> None:
    async with on_a_server(tmp_path) as at, shards(tmp_path, 2, max_entries=20, **at) as (first, second):
        for _ in range(30):
            await first.put(entry())
            await second.put(entry())
            assert (await first.stats()).entries <= 20


async def test_each_keeps_its_own_note_on_a_server(tmp_path: Path) -> None:
    """Its highest epoch, and what it has learned: a shard must not begin below an epoch that it has used."""
    far_ahead = time.time_ns() + 3_600_000_000_000
    async with on_a_server(tmp_path) as at:
        async with shards(tmp_path, 2, lambda: far_ahead, **at) as (_, second):
            await second.put(entry())
        async with shards(tmp_path, 2, **at) as caches:
            assert all([(await cache.stats()).epoch > far_ahead for cache in caches])
            assert [(await cache.stats()).entries for cache in caches] == [1, 1]
            entries, following = await caches[0].page(None, 10)
            assert (len(entries), following) == (1, None)
