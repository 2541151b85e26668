"""The embedded store and its folder: locks, damage, other versions, and a process that is killed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import DIMENSION, EMBEDDER, entry, unit
from store_writer import SLOTS, written
from writers import writer

from deployments.cache.store import StoreError
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import CacheEntry, Selection

KILLS = int(os.environ.get("PROMPTLY_TEST_KILLS", "20"))
ENTRIES = 30


async def test_a_folder_that_is_open_already_is_refused_with_its_name(tmp_path: Path) -> None:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    with pytest.raises(StoreError, match=str(tmp_path)):
        await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    await store.close()


async def test_a_folder_that_another_process_holds_is_refused_until_it_ends(tmp_path: Path) -> None:
    with writer("store_writer.py", tmp_path, 0) as other:
        other.read_until("0")
        with pytest.raises(StoreError, match=str(tmp_path)):
            await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    assert await store.count() > 0
    await store.close()


async def test_a_killed_writer_leaves_whole_entries_and_all_that_it_reported(tmp_path: Path) -> None:
    """``PROMPTLY_TEST_KILLS`` sets how often."""
    reported = -1
    for kill in range(KILLS):
        with writer("store_writer.py", tmp_path, reported + 1) as other:
            # The first ones die while the folder is made or opened, the others in the middle of writes.
            other.read_until("opening" if kill < 2 else str(reported + 1 + kill * 7 % 40))
        reported = max([reported, *map(int, filter(str.isdigit, other.lines))])
        await _check(tmp_path, reported)


async def _check(folder: Path, reported: int) -> None:
    store = await EdgeStore.open(str(folder), DIMENSION, EMBEDDER)
    stored = await store.select(Selection(tenant="t"), 10 * SLOTS)
    assert all(one == replace(written(int(one.text)), vector=None) for one in stored)
    assert await store.count() == len(stored)
    slots = {one.entry_id: int(one.text) for one in stored}
    for number in range(max(0, reported + 1 - SLOTS), reported + 1):
        assert slots[written(number).entry_id] >= number
    near = await store.nearest("p", unit(1), 0.0, 0.0, 10 * SLOTS)
    assert {match.entry.entry_id for match in near} == set(slots)
    await store.close()


async def test_an_unfinished_folder_is_made_again(tmp_path: Path) -> None:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    await store.close()
    _make_unfinished(Path(store.location))
    again = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    await again.put(entry())
    assert await again.count() == 1
    await again.close()
    assert _names(tmp_path) == [Path(store.location).name]


async def test_nobody_else_may_enter_a_store_that_was_made_or_was_open_to_all(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "of ours"
    store = await EdgeStore.open(str(folder), DIMENSION, EMBEDDER)
    await store.close()
    path = Path(store.location)
    assert [_mode(each) for each in (folder, path)] == [0o700, 0o700]
    for each in (folder, path):
        each.chmod(0o755)
    again = await EdgeStore.open(str(folder), DIMENSION, EMBEDDER)
    await again.close()
    assert [_mode(each) for each in (folder, path)] == [0o755, 0o700]  # the first may hold other things


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _make_unfinished(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.new"))


async def test_a_folder_of_another_layout_is_left_alone(tmp_path: Path) -> None:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    await store.close()
    path = Path(store.location)
    other = path.with_name(path.name.replace("v2", "v1"))
    other.mkdir()
    (other / "edge_config.json").write_text("of another time")
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    assert await store.count() == 0
    await store.close()
    assert (other / "edge_config.json").read_text() == "of another time"


async def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.write_text("")
    with pytest.raises(StoreError, match=str(place)):
        await EdgeStore.open(str(place), DIMENSION, EMBEDDER)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir(mode=0o500)
    with pytest.raises(StoreError, match=str(place)):
        await EdgeStore.open(str(place), DIMENSION, EMBEDDER)


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _blank(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(bytes(min(4096, file.stat().st_size)))


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("edge_config.json", _cut),
        ("edge_config.json", Path.unlink),
        ("wal/open-*", _blank),
        ("wal/open-*", Path.unlink),
        ("segments/*/segment.json", Path.unlink),
        ("segments/*/version.info", _blank),
        ("segments/*/mutable_id_tracker.mappings", _cut),
        # The engine panics here, which no ``except Exception`` catches.
        ("segments/*/vector_storage/vectors/status.dat", _cut),
        ("segments/*/vector_storage/vectors/chunk_0.mmap", _blank),
        ("segments/*/payload_storage/page_0.dat", _blank),
        ("segments/*/payload_storage/tracker.dat", Path.unlink),
        ("segments/*/payload_index/config.json", _cut),
    ],
)
async def test_a_damaged_folder_gives_an_error_or_whole_entries(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    store = await EdgeStore.open(str(tmp_path), DIMENSION, EMBEDDER)
    stored = {one.entry_id: one for one in (entry(text=f"text {n}") for n in range(ENTRIES))}
    for one in stored.values():
        await store.put(one)
    await store.close()
    _damage(Path(store.location), pattern, damage)
    found, problem = await _read_all(tmp_path)
    assert all(one == replace(stored[one.entry_id], vector=None) for one in found)
    assert problem is None or str(tmp_path) in problem


def _damage(folder: Path, pattern: str, damage: Callable[[Path], None]) -> None:
    damaged = list(folder.glob(pattern))
    assert damaged
    for file in damaged:
        damage(file)


async def _read_all(folder: Path) -> tuple[list[CacheEntry], str | None]:
    """What can be read, and the error that ended it."""
    found: list[CacheEntry] = []
    store: EdgeStore | None = None
    try:
        store = await EdgeStore.open(str(folder), DIMENSION, EMBEDDER)
        found += await store.select(Selection(tenant="t"), 2 * ENTRIES)
        found += [match.entry for match in await store.nearest("p", unit(1), 150.0, 0.0, 2 * ENTRIES)]
    except StoreError as error:
        return found, str(error)
    finally:
        if store is not None:
            with suppress(StoreError):  # what is damaged may not be flushed either
                await store.close()
    return found, None
