"""An embedded store on a disk that gets full: misses, and no signal."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.full_disk import DIMENSION, VECTOR, entry, small_disk

from deployments.cache.store import StoreError, StoreFull
from deployments.cache.store.disk_floor import DiskFloor, free_bytes
from deployments.cache.store.edge import EdgeStore
from serve_app.cache.entry import Selection

FLOOR = 64 << 20
SIZE = 320 << 20
ROOT = Path(__file__).parents[4]


class Disk:
    """Free bytes as a test says."""

    def __init__(self, free: int = FLOOR * 4) -> None:
        self.free = free

    def __call__(self, _: Path) -> int:
        return self.free


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> AsyncIterator[EdgeStore]:
    opened = await EdgeStore.open(str(tmp_path), DIMENSION, "test", min_free_bytes=FLOOR, free=disk)
    yield opened
    disk.free = FLOOR * 4
    await opened.close()


async def test_below_the_floor_nothing_is_stored_and_what_is_there_answers(
    store: EdgeStore, disk: Disk
) -> None:
    kept = entry()
    await store.put(kept)
    disk.free = FLOOR - 1
    with pytest.raises(StoreFull, match=r"64 MiB are free.*cache\.min_free_disk_bytes"):
        await store.put(entry())
    with pytest.raises(StoreFull):
        await store.write_note("x")
    assert await store.get(kept.entry_id) is not None
    assert len(await store.nearest("p", VECTOR, 0.0, 0.0, 3)) == 1
    assert await store.delete(Selection(tenant="t")) == 1


async def test_far_below_it_the_store_is_not_touched(store: EdgeStore, disk: Disk) -> None:
    kept = entry()
    await store.put(kept)
    disk.free = FLOOR // 4 - 1
    for work in (store.get(kept.entry_id), store.nearest("p", VECTOR, 0.0, 0.0, 3), store.count()):
        with pytest.raises(StoreFull):
            await work
    disk.free = FLOOR * 2
    assert await store.get(kept.entry_id) is not None
    await store.put(entry())


async def test_a_store_is_not_opened_where_room_is_short(tmp_path: Path, disk: Disk) -> None:
    disk.free = FLOOR - 1
    with pytest.raises(StoreFull):
        await EdgeStore.open(str(tmp_path / "new"), DIMENSION, "test", min_free_bytes=FLOOR, free=disk)
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # nothing waits for it


async def test_the_log_says_once_that_room_is_short_and_once_that_it_is_back(
    store: EdgeStore, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    for free in (FLOOR - 1, FLOOR, FLOOR - 2, FLOOR // 9, FLOOR):  # around the floor it does not say so again
        disk.free = free
        with pytest.raises(StoreFull):
            await store.put(entry())
    disk.free = FLOOR * 2
    await store.put(entry())
    await store.put(entry())
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert "nothing is stored until there is room" in said[0]
    assert "there is room again" in said[1]


def test_without_a_floor_nobody_asks() -> None:
    def asked(_: Path) -> int:
        raise AssertionError("nobody has to know")

    DiskFloor(Path("/x"), 0, asked).require(adds=True)


def test_free_room_is_that_of_the_disk_on_which_the_folder_will_be(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    total = found.f_blocks * found.f_frsize
    assert 0 < free_bytes(tmp_path / "not" / "there") <= total


# ---- a real disk ----


@pytest.fixture(name="mounted")
def _mounted(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", SIZE) as folder:
        yield folder


def run(folder: Path, floor: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "support.full_disk", str(folder), str(floor)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_full_disk_ends_no_process(mounted: Path) -> None:
    done = run(mounted, FLOOR)
    assert done.returncode == 0, done
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "opened ok",
        "put while room is short StoreFull",
        "get while room is short ok",
        "put on a full disk StoreFull",
        "get on a full disk StoreFull",
        "close on a full disk StoreError",
        "open on a full disk StoreFull",
        "kept True",
        "put after all ok",
        "end",
    ]


def test_without_the_floor_it_is_a_signal(mounted: Path) -> None:
    """What the floor is for; should this fail, the engine has learned to do without it."""
    assert run(mounted, 0).returncode == -signal.SIGBUS


def test_a_full_disk_is_an_error_of_the_store() -> None:
    assert issubclass(StoreFull, StoreError)
