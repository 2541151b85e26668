"""A cache of several shards: each request goes to the shard of its partition, administrators see all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_cache import LocalCache, local_cache
from sim_engine import SimEngine
from support.gateway import Answered, Running, SimSettings, gateway
from support.graph import eventually
from support.qdrant_rest import on_a_server

from serve_app.cache.entry import CacheStats

QUICK = SimSettings(itl_ms=0, tokens=6)
SHARDS, PARTITIONS = 2, 24
"""An engine's port is part of a partition's name, so which shard owns it is drawn anew in each run: a shard
without any partition comes once in eight million."""

ASKED, NEAR = "what is the capital of france", "the capital of france is what"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture(params=["embedded", "server"])
async def cache(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[LocalCache]:
    sharded: dict[str, Any] = {"race": False, "shards": SHARDS}
    if request.param == "embedded":
        async with local_cache(folder, **sharded) as cache:
            yield cache
        return
    async with on_a_server(folder) as server, local_cache(folder, **sharded, **server) as cache:
        yield cache


@asynccontextmanager
async def filled(cache: LocalCache) -> AsyncIterator[Running]:
    """One entry in each of many partitions."""
    async with an_engine() as engine, filled_before(engine, cache) as running:
        yield running


@asynccontextmanager
async def an_engine() -> AsyncIterator[dict[str, Any]]:
    engine = SimEngine(QUICK)
    try:
        url = await engine.start()
        yield {"others": [{"name": "e0", "url": f"{url}/v1", "kind": "vllm", "health_period_s": 0.05}]}
    finally:
        await engine.stop()


@asynccontextmanager
async def filled_before(engine: dict[str, Any], cache: LocalCache) -> AsyncIterator[Running]:
    async with gateway(handles=cache.handles, **engine, **cache.args) as running:
        for number in range(PARTITIONS):
            assert (await ask(running, number)).headers["x-cache"] == "miss"

        async def all_are_stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"] == PARTITIONS)

        assert await eventually(all_are_stored, within_s=10)
        yield running


async def ask(running: Running, partition: int, text: str = ASKED) -> Answered:
    """Requests that ask for answers of another length share none."""
    return await running.post(text, max_tokens=100 + partition)


async def purge(running: Running, query: str) -> int:
    async with running.http.delete(f"/admin/cache?{query}") as response:
        assert response.status == 200
        return int((await response.json())["deleted"])


async def export(running: Running) -> list[dict[str, Any]]:
    async with running.http.get("/admin/cache/entries") as response:
        return [json.loads(line) for line in (await response.text()).splitlines()]


async def test_every_shard_has_its_partitions_and_answers_for_them(cache: LocalCache) -> None:
    async with filled(cache) as running:
        assert all(store.ended["put"] for store in cache.stores)
        assert sum(store.ended["put"] for store in cache.stores) == PARTITIONS
        for number in range(PARTITIONS):
            assert (await ask(running, number, NEAR)).headers["x-cache"] == "semantic"


async def test_a_purge_reaches_every_shard_and_every_gateways_memory(cache: LocalCache) -> None:
    async with (
        an_engine() as engine,
        filled_before(engine, cache) as running,
        gateway(handles=cache.handles, **engine, **cache.args) as other,
    ):
        for number in range(PARTITIONS):
            assert (await ask(other, number)).headers["x-cache"] == "exact"
        assert await purge(running, "tenant=default") == PARTITIONS
        assert (await running.get("/admin/cache"))["entries"] == 0
        before = [store.ended["stats"] for store in cache.stores]

        async def each_shard_was_asked_again() -> bool:
            return all(
                store.ended["stats"] > count + 1 for store, count in zip(cache.stores, before, strict=True)
            )

        assert await eventually(each_shard_was_asked_again, within_s=10)
        for number in range(PARTITIONS):  # each once: what was asked is stored again
            at = running if number % 2 else other
            assert (await ask(at, number)).headers["x-cache"] == "miss"


async def test_entries_of_all_shards_are_found_exported_and_imported(cache: LocalCache) -> None:
    async with filled(cache) as running:
        found = (await running.get("/admin/cache?tenant=default"))["entries"]
        lines = await export(running)
        assert (
            len({entry["id"] for entry in found}) == len({line["entry_id"] for line in lines}) == PARTITIONS
        )
        assert await purge(running, "tenant=default") == PARTITIONS
        body = "\n".join(map(json.dumps, lines))
        async with running.http.post("/admin/cache/entries", data=body, headers=LINES) as response:
            assert (await response.json())["stored"] == PARTITIONS
        for number in range(PARTITIONS):
            assert (await ask(running, number, NEAR)).headers["x-cache"] == "semantic"


async def test_a_report_goes_to_the_shard_of_the_entry(cache: LocalCache) -> None:
    async with filled(cache) as running:
        for number in range(PARTITIONS):
            entry = (await ask(running, number, NEAR)).headers["x-cache-entry"]
            told = {"entry": entry, "right": False}
            async with running.http.post("/admin/cache/feedback", json=told) as response:
                assert (await response.json())["dropped"] == 1
            assert (await ask(running, number, NEAR)).headers["x-cache"] == "miss"
        told = {"entry": entry, "right": False}
        async with running.http.post("/admin/cache/feedback", json=told) as response:
            assert response.status == 404
        assert sum(store.ended["report"] for store in cache.stores) == PARTITIONS


async def test_a_reported_answer_does_not_come_back_with_the_former_number_of_shards(folder: Path) -> None:
    rules = {"race": False}
    async with an_engine() as engine:
        async with local_cache(folder, **rules, shards=2) as cache, filled_before(engine, cache) as running:
            pass
        async with (
            local_cache(folder, **rules, shards=3) as cache,
            gateway(handles=cache.handles, **engine, **cache.args) as running,
        ):
            for number in range(PARTITIONS):  # those of the third shard are stored there once more
                await ask(running, number)
            assert await eventually(lambda: holds(running, more_than=PARTITIONS), within_s=10)
            for entry in {line["entry_id"] for line in await export(running)}:
                told = {"entry": entry, "right": False}
                async with running.http.post("/admin/cache/feedback", json=told) as response:
                    assert response.status == 200
        async with (
            local_cache(folder, **rules, shards=2) as cache,
            gateway(handles=cache.handles, **engine, **cache.args) as running,
        ):
            assert (await running.get("/admin/cache"))["entries"] == 0


async def holds(running: Running, more_than: int) -> bool:
    return int((await running.get("/admin/cache"))["entries"]) > more_than


async def test_a_broken_shard_keeps_no_report_on_the_entries_of_others(folder: Path) -> None:
    async with local_cache(folder, race=False, shards=SHARDS) as cache, filled(cache) as running:
        statuses = set()
        with cache.stores[1].failing("select"):
            for number in range(PARTITIONS):
                entry = (await ask(running, number, NEAR)).headers["x-cache-entry"]
                told = {"entry": entry, "right": False}
                async with running.http.post("/admin/cache/feedback", json=told) as response:
                    statuses.add(response.status)
        left: CacheStats = await cache.stores[0].target.stats()
        assert left.entries == 0
        assert 200 in statuses
        assert max(statuses) >= 500


async def test_a_broken_shard_costs_the_others_nothing(folder: Path) -> None:
    rules = {"race": False, "shards": SHARDS, "breaker_failures": 1, "breaker_cooldown_s": 60.0}
    async with local_cache(folder, **rules) as cache, filled(cache) as running:
        broken = cache.stores[1]
        with broken.failing("look_up"):
            tiers = [(await ask(running, number, NEAR)).headers["x-cache"] for number in range(PARTITIONS)]
            assert broken.begun["look_up"] > 0
            assert set(tiers) == {"semantic", "miss"}
            assert (await running.get("/admin/cache"))["breaker_open"]
        with broken.failing("stats"):

            async def is_seen() -> bool:
                return bool((await running.get("/health"))["cache"] == "failing")

            assert await eventually(is_seen, within_s=10)


async def test_a_purge_that_one_shard_refuses_is_done_by_the_others_and_reported(folder: Path) -> None:
    async with local_cache(folder, race=False, shards=SHARDS) as cache, filled(cache) as running:
        with cache.stores[0].failing("delete"):
            async with running.http.delete("/admin/cache?tenant=default") as response:
                assert response.status >= 500
        left: CacheStats = await cache.stores[0].target.stats()
        assert (await running.get("/admin/cache"))["entries"] == left.entries > 0


async def test_uses_are_counted_where_the_entry_is(folder: Path) -> None:
    async with local_cache(folder, race=False, shards=SHARDS) as cache, filled(cache) as running:
        for number in range(PARTITIONS):
            assert (await ask(running, number)).headers["x-cache"] == "exact"

        async def all_were_told() -> bool:
            return all(store.ended["used"] for store in cache.stores)

        assert await eventually(all_were_told, within_s=10)
