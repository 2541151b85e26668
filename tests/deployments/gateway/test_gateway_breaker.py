"""A store that was broken and is well again is used again, also where engines are faster than look-ups; and
one that hangs holds nothing up for long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from local_cache import LocalCache, local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=6)
ENTRIES = "/admin/cache/entries"
JSON_LINES = {"content-type": "application/x-ndjson"}
LINE = b'{"kind":"answer","request":{"model":"sim","messages":[{"role":"user","content":"a"}]},"answer":"b"}'
COOLDOWN_S = 0.05
CALL_TIMEOUT_S = 0.3


@asynccontextmanager
async def racing(folder: Path, **settings: Any) -> AsyncIterator[tuple[Running, LocalCache]]:
    async with (
        local_cache(folder, breaker_failures=2, breaker_cooldown_s=COOLDOWN_S, **settings) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        yield running, cache


async def open_breaker(running: Running, cache: LocalCache, asked: Any) -> None:
    with cache.store.failing("look_up"):

        async def is_open() -> bool:
            await running.post(next(asked))
            return bool((await running.get("/admin/cache"))["breaker_open"])

        assert await eventually(is_open, within_s=5)


async def test_an_open_breaker_closes_though_every_look_up_loses_its_race(folder: Path) -> None:
    """The engine's first byte comes while the trial is still under way: the request goes on without it, and
    the trial ends by itself."""
    async with racing(folder) as (running, cache):
        asked = (f"question {number} of many" for number in count())
        await open_breaker(running, cache, asked)
        with cache.store.held("look_up"):

            async def a_trial_is_under_way() -> bool:
                before = cache.store.begun["look_up"]
                assert (await running.post(next(asked))).status == 200
                return cache.store.begun["look_up"] > before

            assert await eventually(a_trial_is_under_way, within_s=5)
            assert cache.store.cancelled["look_up"] == 0
            assert (await running.get("/admin/cache"))["breaker_open"]

        async def is_closed() -> bool:
            return not (await running.get("/admin/cache"))["breaker_open"]

        assert await eventually(is_closed, within_s=5)
        dropped = (await running.get("/admin/cache"))["dropped"]
        assert (await running.post(next(asked))).status == 200
        assert (await running.get("/admin/cache"))["dropped"] == dropped


async def test_a_trial_that_nobody_waits_for_still_has_its_budget(folder: Path) -> None:
    async with racing(folder, lookup_budget_ms=100.0) as (running, cache):
        asked = (f"question {number} of many" for number in count())
        await open_breaker(running, cache, asked)
        before = (await running.get("/admin/cache"))["failures"]
        with cache.store.held("look_up"):

            async def has_failed() -> bool:
                await running.post(next(asked))
                return bool((await running.get("/admin/cache"))["failures"] > before)

            assert await eventually(has_failed, within_s=5)
            assert (await running.get("/admin/cache"))["breaker_open"]


@pytest.mark.parametrize(
    ("held", "method", "path"),
    [
        ("stats", "GET", "/admin/cache"),
        ("select", "GET", "/admin/cache?tenant=default"),
        ("page", "GET", ENTRIES),
        ("put", "POST", ENTRIES),
    ],
)
async def test_a_store_that_hangs_is_given_up(folder: Path, held: str, method: str, path: str) -> None:
    async with racing(folder, call_timeout_s=CALL_TIMEOUT_S) as (running, cache):
        with cache.store.held(held):
            body = LINE if method == "POST" else None
            async with running.http.request(method, path, data=body, headers=JSON_LINES) as response:
                assert response.status == 503, await response.read()
                assert (await response.json())["error"][
                    "message"
                ] == "The cache did not answer: TimeoutError."


async def test_a_hanging_embedder_does_not_hold_up_an_import(folder: Path) -> None:
    async with racing(folder, call_timeout_s=CALL_TIMEOUT_S) as (running, cache):
        with cache.embedder.held("embed"):
            async with running.http.post(ENTRIES, data=LINE, headers=JSON_LINES) as response:
                assert response.status == 503, await response.read()


async def test_purges_are_followed_again_after_a_store_hung(folder: Path) -> None:
    """Telling the store what memory answered must not stop the loop that looks for purges."""
    async with racing(folder, call_timeout_s=CALL_TIMEOUT_S) as (running, cache):
        assert (await running.post("hi")).headers["x-cache"] == "miss"
        with cache.store.held("used"):
            assert (await running.post("hi")).headers["x-cache"] == "exact"

            async def is_told() -> bool:
                return cache.store.cancelled["used"] > 0

            assert await eventually(is_told, within_s=5)
        before = cache.store.ended["stats"]

        async def follows() -> bool:
            return cache.store.ended["stats"] > before

        assert await eventually(follows, within_s=5)
