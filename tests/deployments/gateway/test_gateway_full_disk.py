"""A disk that gets full under the cache: requests flow as misses, the log says why once, hits come back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cache import local_cache
from support.full_disk import fill, small_disk
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=4)
FLOOR = 32 << 20


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 320 << 20) as folder:
        yield folder


async def cached(running: Running, text: str) -> str:
    answer = await running.post(text)
    assert answer.status == 200
    return str(answer.headers["x-cache"])


async def until_stored(running: Running, entries: int) -> None:
    async def stored() -> bool:
        return int((await running.get("/admin/cache"))["entries"]) >= entries

    assert await eventually(stored, within_s=5)


@pytest.mark.parametrize("leave", [FLOOR // 2, 0], ids=["short", "full"])
async def test_requests_are_misses_while_the_disk_is_full_and_hits_afterwards(
    disk: Path, leave: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"race": False, "exact_entries": 1, "min_free_disk_bytes": FLOOR}
    async with (
        local_cache(disk, **settings) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        assert await cached(running, "the first question") == "miss"
        await until_stored(running, 1)
        caplog.clear()
        other = fill(disk, leave)
        for number in range(10):  # more than open a breaker
            assert await cached(running, f"another question {number}") == "miss"
        stats = await running.get("/admin/cache")
        assert "cache.min_free_disk_bytes" in (stats["error"] or "")
        other.unlink()
        assert await cached(running, "the first question") in ("exact", "semantic")
        assert await cached(running, "a later question") == "miss"
        await until_stored(running, 2)
        assert (await running.get("/admin/cache"))["error"] is None
    said = [each.message for each in caplog.records if "min_free_disk_bytes" in each.message]
    assert len(said) == 1
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] != []


async def test_a_cache_that_finds_no_room_at_its_start_is_done_without(tmp_path: Path) -> None:
    async with (
        local_cache(tmp_path, race=False, min_free_disk_bytes=1 << 60) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        for _ in range(2):
            assert (await running.post("hi")).status == 200
        assert "cache.min_free_disk_bytes" in (await running.get("/admin/cache"))["error"]
    assert not (tmp_path / "store").exists()
