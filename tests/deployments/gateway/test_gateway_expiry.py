"""Answers that are not stored, and answers that have outlived their time."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

from local_cache import local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=6)
ASKED = "what is the capital of france"
BRIEF = {"x-cache-ttl": "0.05"}


async def until(running: Running, tier: str, *, stale: bool) -> None:
    async def found() -> bool:
        headers = (await running.post(ASKED)).headers
        return headers["x-cache"] == tier and ("x-cache-stale" in headers) == stale

    assert await eventually(found, within_s=10)


async def refreshed(running: Running) -> int:
    count: int = (await running.get("/admin/traffic"))["refreshed"]
    return count


async def test_what_a_rule_excludes_is_not_stored(folder: Path) -> None:
    rules: list[dict[str, Any]] = [{"prompt": "today", "ttl_s": 0}]
    async with (
        local_cache(folder, race=False, rules=rules) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        for headers in ({}, {}, {"x-cache-ttl": "600"}, {}):
            assert (await running.post("what is new today", headers)).headers["x-cache"] == "miss"
        await running.post(ASKED)
        await until(running, "exact", stale=False)


async def test_a_stale_answer_is_given_at_once_and_replaced(folder: Path) -> None:
    async with (
        local_cache(folder, race=False, stale_s=600.0) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        await running.post(ASKED, headers=BRIEF)
        await until(running, "exact", stale=True)
        assert await refreshed(running) >= 1
        await until(running, "exact", stale=False)
        asked = await refreshed(running)
        await running.post(ASKED)
        assert await refreshed(running) == asked


async def test_a_stale_entry_does_not_answer_another_text(folder: Path) -> None:
    async with (
        local_cache(folder, race=False, stale_s=600.0, exact_entries=1) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        await running.post(ASKED, headers=BRIEF)

        async def is_stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"] == 1)

        assert await eventually(is_stored, within_s=5)
        # The same words in ever new orders: near to what is stored, and never asked before.
        orders = (" ".join(words) for words in permutations(ASKED.split()))

        async def is_no_hit() -> bool:
            return (await running.post(next(orders), headers=BRIEF)).headers["x-cache"] == "miss"

        assert await eventually(is_no_hit, within_s=10)
