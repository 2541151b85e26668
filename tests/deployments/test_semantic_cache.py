"""The cache deployment as a plain class, on a real store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from support.graph import eventually

from deployments.semantic_cache import SemanticCache
from deployments.store import StoreError
from deployments.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, CacheQuery, Selection
from serve_app.embedding import EmbedderInfo
from serve_app.openai.answers import Answer, Usage
from serve_app.settings import CacheSettings

DIMENSION = 4
INFO = EmbedderInfo("test", DIMENSION, 256)
NEAR = np.array([1, 0.1, 0, 0], dtype=np.float32)
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32).tobytes()


class EmbedderHandle:
    """What the cache knows of the embedder: its description."""

    @property
    def describe(self) -> EmbedderHandle:
        return self

    async def remote(self) -> EmbedderInfo:
        return INFO


class PlainCache(SemanticCache):
    """Serve awaits the destructor; the interpreter would not."""

    def __del__(self) -> None:  # type: ignore[override]
        """Tests call ``close``."""


async def open_cache(path: Path, *, reopen_s: float = 60.0, **settings: Any) -> SemanticCache:
    cache = PlainCache.__new__(PlainCache)
    handle: Any = EmbedderHandle()
    # As Serve does.
    await cache.__init__(CacheSettings(path=str(path), **settings), handle, reopen_s)  # type: ignore[misc]
    return cache


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
    assert exact is not None
    assert exact.kind == "exact"
    near = CacheQuery(uuid4(), "p", "other words", (NEAR / np.linalg.norm(NEAR)).tobytes())
    hit = await cache.look_up(near)
    assert hit is not None
    assert hit.kind == "semantic"
    assert await cache.look_up(replace(near, threshold=0.9999)) is None
    assert await cache.look_up(replace(near, partition="q")) is None
    assert await cache.look_up(replace(near, vector=None)) is None


async def test_a_purge_raises_the_epoch_after_the_entries_are_gone(cache: SemanticCache) -> None:
    stored = entry()
    await cache.put(stored)
    before = await cache.look_up(query(stored))
    assert await cache.delete(Selection(tag="red")) == 1
    assert before is not None
    assert before.epoch < (await cache.stats()).epoch
    assert await cache.look_up(query(stored)) is None


async def test_an_answer_from_before_a_purge_is_not_stored_after_it(
    cache: SemanticCache,
) -> None:
    late, other = entry(), entry(tags=("blue",))
    await cache.delete(Selection(tag="red"))
    await cache.put(late)
    await cache.put(other)
    assert await cache.look_up(query(late)) is None
    assert await cache.look_up(query(other)) is not None
    fresh = entry(entry_id=late.entry_id, created_at=time.time() + 1)
    await cache.put(fresh)
    assert await cache.look_up(query(fresh)) is not None


async def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    cache = await open_cache(tmp_path, max_entries=3)
    stored = [entry(created_at=100.0 + age, expires_at=time.time() + 60) for age in range(5)]
    for one in stored:
        await cache.put(one)
    assert (await cache.stats()).entries == 3
    assert await cache.look_up(query(stored[0])) is None
    assert await cache.look_up(query(stored[4])) is not None
    await cache.close()


async def test_a_store_that_another_process_holds_is_opened_once_it_is_free(tmp_path: Path) -> None:
    holder = EdgeStore.open(str(tmp_path), DIMENSION, INFO.name)
    cache = await open_cache(tmp_path, reopen_s=0.05)
    stored = entry()
    with pytest.raises(StoreError, match=str(tmp_path)):
        await cache.put(stored)
    assert str(tmp_path) in ((await cache.stats()).error or "")
    holder.close()

    async def is_open() -> bool:
        return (await cache.stats()).error is None

    assert await eventually(is_open, within_s=10)
    await cache.put(stored)
    assert await cache.look_up(query(stored)) is not None
    await cache.close()
