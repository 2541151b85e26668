"""A cache that starts again is one epoch further, whatever its clock says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.semantic_cache import INFO, EmbedderHandle, open_semantic_cache

from deployments.cache.deployment import SemanticCache
from deployments.cache.note import CacheNote
from deployments.cache.store import CacheStore, StoreError
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import Selection
from serve_app.cache.normal import vectors_of
from serve_app.settings import CacheSettings

NOW_NS = 1_800_000_000_000_000_000
YEAR_NS = 365 * 24 * 3600 * 10**9


def clock(now_ns: int) -> Callable[[], int]:
    return lambda: now_ns


@asynccontextmanager
async def started(folder: Path, now_ns: int, reopen_s: float = 60.0) -> AsyncIterator[SemanticCache]:
    settings = CacheSettings(path=str(folder), decision="similarity", min_free_disk_bytes=0)
    cache = await open_semantic_cache(settings, EmbedderHandle(), reopen_s, clock(now_ns))
    try:
        yield cache
    finally:
        await cache.close()


async def epoch(cache: SemanticCache) -> int:
    return (await cache.stats()).epoch


@pytest.mark.parametrize("behind_ns", [-YEAR_NS, 0, 10**9, YEAR_NS])
async def test_an_epoch_rises_over_a_restart_whose_clock_is_behind(tmp_path: Path, behind_ns: int) -> None:
    async with started(tmp_path, NOW_NS) as cache:
        for _ in range(3):
            await cache.delete(Selection(tenant="t"))
        before = await epoch(cache)
    async with started(tmp_path, NOW_NS - behind_ns) as cache:
        after = await epoch(cache)
        assert after > before
        await cache.delete(Selection(tenant="t"))
        assert await epoch(cache) > after


async def test_it_rises_though_the_cache_before_was_killed(tmp_path: Path) -> None:
    """Nothing is written down at the end: what is needed was written at the start."""
    store = await EdgeStore.open(str(tmp_path), INFO.dimension, vectors_of(INFO))
    note = await CacheNote.read(store)
    begun = await note.begin(NOW_NS)
    await store.close()
    async with started(tmp_path, NOW_NS - YEAR_NS) as cache:
        assert await epoch(cache) > begun + 1_000_000


async def test_what_was_learned_stays_beside_it(tmp_path: Path) -> None:
    store = await EdgeStore.open(str(tmp_path), 4, "test")
    await store.write_note('{"blocked":[]}')  # as it was kept before epochs were
    old = await CacheNote.read(store)
    assert await old.read_note() == '{"blocked":[]}'
    assert await old.begin(5) == 5
    again = await CacheNote.read(store)
    assert await again.read_note() == '{"blocked":[]}'
    begun = await again.begin(0)
    assert begun > 5
    await again.write_note('{"blocked":[1]}')
    last = await CacheNote.read(store)
    assert (await last.read_note(), await last.begin(0) > begun) == ('{"blocked":[1]}', True)
    await store.close()


class Refusing:
    """A store whose note cannot be written."""

    async def read_note(self) -> str | None:
        return None

    async def write_note(self, note: str) -> None:
        raise StoreError(f"not written: {note}")


async def test_nothing_begins_that_could_not_be_written_down() -> None:
    store: CacheStore = Refusing()  # type: ignore[assignment]
    note = await CacheNote.read(store)
    with pytest.raises(StoreError):
        await note.begin(NOW_NS)
