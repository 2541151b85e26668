"""The cache deployment as a plain class, on a real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from support.graph import eventually
from support.qdrant_rest import Fault, QdrantRest
from support.semantic_cache import INFO, EmbedderHandle, open_semantic_cache

from deployments.cache.deployment import SemanticCache
from deployments.cache.store import StoreError
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, CacheQuery, Hit, Miss, Selection
from serve_app.cache.normal import vectors_of
from serve_app.gateways.announced import Announced, Ended
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings
from serve_app.settings.qdrant import QdrantSettings

NEAR = np.array([1, 0.1, 0, 0], dtype=np.float32)
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32).tobytes()


async def open_cache(path: Path, *, reopen_s: float = 60.0, **settings: Any) -> SemanticCache:
    values = CacheSettings(path=str(path), decision="similarity", **settings)
    return await open_semantic_cache(values, EmbedderHandle(), reopen_s)


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[SemanticCache]:
    cache = await open_cache(tmp_path)
    yield cache
    await cache.close()


def entry(**changes: Any) -> CacheEntry:
    now = time.time()
    answer = Answer("m", "a", Usage(1, 1, 2))
    base = CacheEntry(uuid4(), "t", "m", "p", "question", answer, now, now + 60, ("red",), VECTOR)
    return replace(base, **changes)


def query(stored: CacheEntry, **changes: Any) -> CacheQuery:
    return replace(CacheQuery(stored.entry_id, stored.partition, stored.text), **changes)


async def test_the_same_text_is_found_without_a_vector_and_a_near_one_with_it(cache: SemanticCache) -> None:
    stored = entry()
    await cache.put(stored)
    exact = await cache.look_up(query(stored))
    assert isinstance(exact, Hit)
    assert exact.kind == "exact"
    near = CacheQuery(uuid4(), "p", "other words", (NEAR / np.linalg.norm(NEAR)).tobytes())
    hit = await cache.look_up(near)
    assert isinstance(hit, Hit)
    assert hit.kind == "semantic"
    assert isinstance(await cache.look_up(replace(near, threshold=0.9999)), Miss)
    assert isinstance(await cache.look_up(replace(near, partition="q")), Miss)
    assert isinstance(await cache.look_up(replace(near, vector=None)), Miss)


@pytest.mark.parametrize("is_stored", [True, False], ids=["hit", "miss"])
async def test_what_a_look_up_tells_of_ended_requests_counts_whatever_it_finds(
    cache: SemanticCache, is_stored: bool
) -> None:
    stored = entry()
    if is_stored:
        await cache.put(stored)
    asked = CacheQuery(uuid4(), "p", "asked elsewhere")
    await cache.look_up(replace(asked, announced=Announced(b"k", "one")))
    telling = Announced(b"other", "two", (Ended(b"k", "one"),))
    assert isinstance(await cache.look_up(query(stored, announced=telling)), Hit) is is_stored
    found = await cache.look_up(replace(asked, announced=Announced(b"k", "three")))
    assert isinstance(found, Miss)
    assert found.answered_at is None


async def test_a_purge_raises_the_epoch_after_the_entries_are_gone(cache: SemanticCache) -> None:
    stored = entry()
    await cache.put(stored)
    before = await cache.look_up(query(stored))
    assert await cache.delete(Selection(tag="red")) == 1
    assert isinstance(before, Hit)
    assert before.epoch < (await cache.stats()).epoch
    assert isinstance(await cache.look_up(query(stored)), Miss)


async def test_an_answer_from_before_a_purge_is_not_stored_after_it(
    cache: SemanticCache,
) -> None:
    late, other = entry(), entry(tags=("blue",))
    await cache.delete(Selection(tag="red"))
    await cache.put(late)
    await cache.put(other)
    assert isinstance(await cache.look_up(query(late)), Miss)
    assert isinstance(await cache.look_up(query(other)), Hit)
    fresh = entry(entry_id=late.entry_id, created_at=time.time() + 1)
    await cache.put(fresh)
    assert isinstance(await cache.look_up(query(fresh)), Hit)


async def test_what_is_worth_least_makes_room(tmp_path: Path) -> None:
    cache = await open_cache(tmp_path, max_entries=3)
    stored = [entry(answer=Answer("m", "a", Usage(1, tokens, 1))) for tokens in (30, 10, 40, 20, 50)]
    for one in stored:
        await cache.put(one)
    left = [isinstance(await cache.look_up(query(one)), Hit) for one in stored]
    assert left == [True, False, True, False, True]
    await cache.close()


async def test_a_tenant_that_fills_the_cache_pushes_out_its_own_entries(tmp_path: Path) -> None:
    cache = await open_cache(tmp_path, max_entries=10)
    small = [entry(tenant="small", answer=Answer("m", "a", Usage(1, 1, 1))) for _ in range(3)]
    flood = [entry(tenant="flood", answer=Answer("m", "a", Usage(1, 500, 1))) for _ in range(40)]
    for one in (*small, *flood):
        await cache.put(one)
    assert (await cache.stats()).entries == 10
    assert [isinstance(await cache.look_up(query(one)), Hit) for one in small] == [True] * 3
    await cache.close()


async def test_a_store_that_another_process_holds_is_opened_once_it_is_free(tmp_path: Path) -> None:
    holder = await EdgeStore.open(str(tmp_path), INFO.dimension, vectors_of(INFO))
    cache = await open_cache(tmp_path, reopen_s=0.05)
    stored = entry()
    with pytest.raises(StoreError, match=str(tmp_path)):
        await cache.put(stored)
    assert str(tmp_path) in ((await cache.stats()).error or "")
    await holder.close()

    async def is_open() -> bool:
        return (await cache.stats()).error is None

    assert await eventually(is_open, within_s=10)
    await cache.put(stored)
    assert isinstance(await cache.look_up(query(stored)), Hit)
    await cache.close()


@asynccontextmanager
async def server_cache(folder: Path, **settings: Any) -> AsyncIterator[tuple[SemanticCache, QdrantRest]]:
    """A cache on a server that can be told to fail."""
    server = QdrantRest(folder / "qdrant")
    await server.start()
    values = CacheSettings(
        store="qdrant", decision="similarity", qdrant=QdrantSettings(url=server.url, **settings)
    )
    cache = await open_semantic_cache(values, EmbedderHandle(), 60.0)
    try:
        yield cache, server
    finally:
        await cache.close()
        await server.close()


async def test_a_server_holds_the_cache_as_the_folder_does(tmp_path: Path) -> None:
    async with server_cache(tmp_path, timeout_s=30.0) as (cache, server):
        stored = entry()
        await cache.put(stored)
        near = CacheQuery(uuid4(), "p", "other words", (NEAR / np.linalg.norm(NEAR)).tobytes())
        hit = await cache.look_up(near)
        assert isinstance(hit, Hit)
        assert hit.kind == "semantic"
        stats = await cache.stats()
        assert stats.entries == 1
        assert stats.path.startswith(server.url)
        assert await cache.delete(Selection(tag="red")) == 1
        assert isinstance(await cache.look_up(query(stored)), Miss)


async def test_the_next_candidate_answers_when_the_nearest_must_not(cache: SemanticCache) -> None:
    wordless, next_one = entry(text="…"), entry(vector=(NEAR / np.linalg.norm(NEAR)).tobytes())
    for stored in (wordless, next_one):
        await cache.put(stored)
    hit = await cache.look_up(CacheQuery(uuid4(), "p", "words", VECTOR))
    assert isinstance(hit, Hit)
    assert hit.entry.entry_id == next_one.entry_id


async def test_look_ups_do_not_wait_for_a_write(tmp_path: Path) -> None:
    async with server_cache(tmp_path, timeout_s=30.0) as (cache, server):
        stored = entry()
        await cache.put(stored)
        server.fault, server.fault_path = Fault.HANG, "/points/delete"
        purge = asyncio.create_task(cache.delete(Selection(tag="red")))
        await server.hanging.wait()
        before = await cache.look_up(query(stored))
        assert isinstance(before, Hit)
        server.let()
        assert await purge == 1
        assert before.epoch < (await cache.stats()).epoch


async def test_a_look_up_that_a_purge_overtakes_finds_nothing(tmp_path: Path) -> None:
    async with server_cache(tmp_path, timeout_s=30.0) as (cache, server):
        stored = entry()
        await cache.put(stored)
        server.fault, server.fault_path = Fault.LATE, "/points"
        look_up = asyncio.create_task(cache.look_up(query(stored)))
        await server.hanging.wait()
        server.fault = None
        await cache.delete(Selection(tag="red"))
        server.let()
        assert await look_up == Miss()


async def test_a_write_that_was_given_up_and_is_done_after_a_purge_is_not_found(tmp_path: Path) -> None:
    async with server_cache(tmp_path, timeout_s=0.5) as (cache, server):
        stored = entry()
        server.fault, server.fault_path = Fault.HANG, "/points"
        with pytest.raises(StoreError, match="no answer"):
            await cache.put(stored)
        server.fault = None
        await cache.delete(Selection(tag="red"))
        server.let()

        async def is_written() -> bool:
            return (await cache.stats()).entries == 1

        assert await eventually(is_written, within_s=10)
        assert isinstance(await cache.look_up(query(stored)), Miss)
        assert isinstance(await cache.look_up(CacheQuery(uuid4(), "p", "words", VECTOR)), Miss)


async def test_a_purge_is_known_though_the_store_failed(tmp_path: Path) -> None:
    async with server_cache(tmp_path, timeout_s=30.0) as (cache, server):
        stored = entry()
        await cache.put(stored)
        before = (await cache.stats()).epoch
        server.fault = Fault.ERROR
        with pytest.raises(StoreError):
            await cache.delete(Selection(tag="red"))
        stats = await cache.stats()
        assert stats.epoch > before
        assert "broken on purpose" in (stats.error or "")
        server.fault = None
        assert isinstance(await cache.look_up(query(stored)), Miss)
