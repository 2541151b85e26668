"""A cache that cannot be used is named in `/health`, `/admin/cache` and once in the log; requests go on."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=4)


async def until_cache_is(running: Running, state: str) -> None:
    async def so() -> bool:
        return bool((await running.get("/health"))["cache"] == state)

    assert await eventually(so, within_s=8), await running.get("/health")


async def assert_served(running: Running) -> None:
    """And ready: the cache is optional."""
    assert (await running.post("hi")).status == 200
    async with running.http.get("/ready") as response:
        assert response.status == 200
    assert (await running.get("/health"))["status"] == "ok"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "without the cache" in each.message]


async def test_a_store_that_cannot_be_opened_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").write_text("a file where the store's folder should be")
    async with (
        local_cache(tmp_path, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        await until_cache_is(running, "failing")
        await assert_served(running)
        stats = await running.get("/admin/cache")
        assert stats["error"]
        assert (stats["state"], stats["trouble"]) == ("failing", "the store reports an error")
        await asyncio.sleep(1.5)  # a second look must not say it again
    assert said(caplog) == [
        f"serving without the cache: {stats['error']}",
        "requests are answered without the cache: the store reports an error (see /admin/cache)",
    ]
    assert all(each.levelno == logging.ERROR for each in caplog.records if each.message in said(caplog))


@pytest.mark.parametrize(
    ("part", "method", "trouble"),
    [
        ("embedder", "describe", "the embedder does not answer"),
        ("store", "stats", "the store does not answer"),
    ],
)
async def test_a_part_that_stops_answering_is_named_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str, method: str, trouble: str
) -> None:
    async with (
        local_cache(tmp_path, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        await until_cache_is(running, "ok")
        handle: Any = getattr(cache, part)
        with handle.failing(method):
            await until_cache_is(running, "failing")
            await assert_served(running)
        await until_cache_is(running, "ok")
        assert (await running.get("/admin/cache"))["trouble"] is None
    assert said(caplog) == [f"requests are answered without the cache: {trouble} (see /admin/cache)"]
    assert "the cache works again" in caplog.text


async def test_without_a_cache_nothing_is_said_of_one() -> None:
    async with gateway(QUICK) as running:
        assert await running.get("/health") == {"status": "ok"}
