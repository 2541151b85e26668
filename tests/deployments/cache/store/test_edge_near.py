"""Searches of the embedded store in partitions so large that a sketch says what is compared."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from sketch_writer import SKETCH_FROM, SLOTS, slot
from store_samples import DIMENSION, EMBEDDER
from writers import writer

from deployments.cache.store import CacheStore
from deployments.cache.store.base import Match
from deployments.cache.store.edge import EdgeStore
from deployments.cache.store.edge_kept_sketch import FILE_NAME, KeptSketch
from deployments.cache.store.edge_sketch import CANDIDATES, RECORD, SLACK
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume

KILLS = int(os.environ.get("PROMPTLY_TEST_KILLS", "3"))
ALONE = 10**9
"""As ``sketch_from``: the engine searches alone."""


@asynccontextmanager
async def opened(folder: Path, sketch_from: int = SKETCH_FROM) -> AsyncIterator[EdgeStore]:
    store = await EdgeStore.open(str(folder), DIMENSION, EMBEDDER, sketch_from)
    try:
        yield store
    finally:
        await store.close()


async def fill(store: CacheStore, numbers: Sequence[int]) -> None:
    for number in numbers:
        await store.put(slot(number))


async def asked(store: CacheStore, now: float = 150.0, oldest: float = 0.0) -> list[list[Match]]:
    """What is near to some vectors that were not stored."""
    return [await store.nearest("p", vector_of(10_000 + number), now, oldest, 3) for number in range(10)]


def vector_of(number: int) -> bytes:
    vector = slot(number).vector
    assert vector is not None
    return vector


async def as_the_engine_alone(folder: Path, found: list[list[Match]]) -> bool:
    async with opened(folder, ALONE) as store:
        return await asked(store) == found


async def test_what_is_near_is_what_the_engine_finds_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(200))
        await store.annotate(slot(7).entry_id, Annotation(uses=9))
        found = await asked(store)
        assert await own(store, 7) == replace(slot(7), vector=None, uses=9)
    assert await as_the_engine_alone(tmp_path, found)


async def own(store: CacheStore, number: int) -> CacheEntry | None:
    """The entry that is nearest to the vector of this slot."""
    matches = await store.nearest("p", vector_of(number), 150.0, 0.0, 1)
    return matches[0].entry if matches else None


async def test_what_was_removed_in_any_way_is_not_near(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(200))
        for number in (1, 2, 3):
            await store.put(replace(slot(number), tags=("prices",)))
        await store.put(replace(slot(4), expires_at=140.0))
        await store.put(replace(slot(5), value=-1.0))
        await store.delete(Selection(entry_id=slot(0).entry_id))
        assert await store.delete(Selection(tag="prices")) == 3
        assert await store.delete_expired(145.0) == 1
        assert (await store.evict("t", Volume(1))).volume.entries == 1
        for number in range(6):
            assert await own(store, number) != replace(slot(number), vector=None)
        assert await own(store, 6) == replace(slot(6), vector=None)
        assert await store.count() == 194
        found = await asked(store)
    assert await as_the_engine_alone(tmp_path, found)


async def test_entries_of_a_large_partition_expire_and_grow_too_old(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for number in range(300):
            times = {"expires_at": 200.0 + number % 2, "created_at": 100.0 + number % 3}
            await store.put(replace(slot(number), **times))
        late = [match.entry for matches in await asked(store, now=200.0) for match in matches]
        assert {one.expires_at for one in late} == {201.0}
        young = [match.entry for matches in await asked(store, oldest=102.0) for match in matches]
        assert {one.created_at for one in young} == {102.0}
        assert await asked(store, now=201.0) == [[]] * 10


async def test_a_large_purge_and_much_change_leave_searches_right(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(8):  # beyond what may be gone before the sketch is rebuilt
            await fill(store, range(150))
            assert await store.delete(Selection(tenant="t")) == 150
        await fill(store, range(100))
        found = await asked(store)
        size = (Path(store.location) / FILE_NAME).stat().st_size
    assert await as_the_engine_alone(tmp_path, found)
    assert size < (100 + 2 * SLACK) * RECORD.itemsize


async def test_a_store_that_was_closed_is_whole_when_it_opens(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(300))
        await store.put(replace(slot(300), vector=None))
        await store.write_note("no entry")
        await store.delete(Selection(entry_id=slot(5).entry_id))
        found = await asked(store)
    async with opened(tmp_path) as store:
        assert store.is_settled
        assert await asked(store) == found


def _remove(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    os.truncate(file, 100 * RECORD.itemsize + 7)


def _blank(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _garble(file: Path) -> None:
    file.write_bytes(np.random.default_rng(1).bytes(1000 * RECORD.itemsize + 1))


def _replace_with_folder(file: Path) -> None:
    file.unlink()
    (file / "sub").mkdir(parents=True)


@pytest.mark.parametrize("damage", [_remove, _cut, _blank, _garble, _replace_with_folder])
async def test_a_sketch_that_is_lost_or_damaged_is_rebuilt(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(300))
        await store.put(replace(slot(300), vector=None))
        await store.write_note("no entry")
        found = await asked(store)
    damage(Path(store.location) / FILE_NAME)
    async with opened(tmp_path) as store:
        assert not store.is_settled
        assert await asked(store) == found
        await store.settle()
        assert store.is_settled
        assert await asked(store) == found
    async with opened(tmp_path) as store:
        assert store.is_settled or damage is _replace_with_folder


async def test_what_changes_while_a_sketch_is_made_is_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(400))
    (Path(store.location) / FILE_NAME).unlink()
    async with opened(tmp_path) as store:
        await asyncio.gather(
            store.settle(),
            fill(store, range(400, 500)),
            fill(store, range(50)),
            store.delete(Selection(entry_id=slot(60).entry_id)),
            store.put(replace(slot(61), tags=("prices",))),
            store.delete(Selection(tag="prices")),
            store.annotate(slot(62).entry_id, Annotation(uses=5)),
        )
        assert store.is_settled
        assert await store.count() == 498
        assert await own(store, 499) == replace(slot(499), vector=None)
        assert await own(store, 62) == replace(slot(62), vector=None, uses=5)
        found = await asked(store)
    async with opened(tmp_path) as store:
        assert store.is_settled
    assert await as_the_engine_alone(tmp_path, found)


async def test_a_store_closes_while_its_sketch_is_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, range(300))
        found = await asked(store)
    (Path(store.location) / FILE_NAME).unlink()
    async with opened(tmp_path):
        pass
    async with opened(tmp_path) as store:
        await store.settle()
        assert await asked(store) == found


async def test_a_killed_writer_leaves_a_store_whose_entries_are_all_near(tmp_path: Path) -> None:
    """``PROMPTLY_TEST_KILLS`` sets how often."""
    first = 0
    for kill in range(KILLS):
        with writer("sketch_writer.py", tmp_path, first) as one:
            one.read_until(str(first + SLOTS + kill * 7 % 40))
        first = max(map(int, filter(str.isdigit, one.lines))) + 1
        async with opened(tmp_path) as store:
            await store.settle()
            stored = await store.select(Selection(tenant="t"), 2 * SLOTS)
            assert len(stored) == await store.count() > CANDIDATES
            for entry in stored:
                assert entry == replace(slot(int(entry.text)), vector=None)
            for entry in stored[::3]:
                assert await own(store, int(entry.text)) == entry
        async with opened(tmp_path) as store:
            assert store.is_settled


def test_a_sketch_that_cannot_be_written_is_removed_and_serves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeptSketch(tmp_path, DIMENSION, SKETCH_FROM)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * RECORD.itemsize + 3, limits[1]))
    try:
        for number in range(200):
            kept.put(UUID(int=number + 1), "p", 0.0, 1e12, vector_of(number))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(kept) == 200
    assert UUID(int=8) in (kept.near("p", vector_of(7), 1.0, 0.0, 1) or ())
    assert len(caplog.records) == 1
    assert "the next start rebuilds it" in caplog.text
    assert list(tmp_path.iterdir()) == []
    kept.close()


def test_a_file_that_was_being_rewritten_is_read_as_it_was(tmp_path: Path) -> None:
    kept = KeptSketch(tmp_path, DIMENSION, SKETCH_FROM)
    for number in range(100):
        kept.put(UUID(int=number + 1), "p", 0.0, 1e12, vector_of(number))
    kept.close()
    shutil.copy(tmp_path / FILE_NAME, tmp_path / f"{FILE_NAME}.new")
    os.truncate(tmp_path / f"{FILE_NAME}.new", 50)
    again = KeptSketch(tmp_path, DIMENSION, SKETCH_FROM)
    assert again.ids() == {UUID(int=number + 1) for number in range(100)}
    again.close()
