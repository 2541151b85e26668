"""The gateway's side of the cache: its parts, and what keeps them in step with the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deployments.gateway.lookup.cache_health import CacheHealth, Part
from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.look_ups import Embed, LookUps
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.new_entries import NewEntries
from deployments.gateway.lookup.shards import CacheShards, Shard
from deployments.gateway.lookup.store_admin import StoreAdmin
from deployments.gateway.lookup.writes import Writes
from deployments.wire.direct_calls import DirectClient
from serve_app.cache.entry import CacheStats
from serve_app.cache.expiry import expiry_of
from serve_app.cache.normal import load_normaliser
from serve_app.request.tenant_marks import TenantMarks
from serve_app.settings import CacheSettings
from serve_app.wire.calls import EMBEDDER

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

EPOCH_PERIOD_S = 1.0
EMBEDDER_PERIOD_S = 2.0
"""Between two looks at the embedder, which no look-up may ask for hours."""

logger = logging.getLogger("ray.serve")


class CacheClient:
    """``memory`` is asked first, then ``look_ups``; answers go through ``new_entries`` to ``writes``, and
    ``store`` is for administrators. Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: CacheSettings,
        embedder: DeploymentHandle[Any],
        cache: Sequence[DeploymentHandle[Any]],
        marks: TenantMarks,
    ) -> None:
        """``cache``: each of its shards."""
        self._call_timeout_s = settings.call_timeout_s
        # For look-ups only: no client waits for the other calls.
        self._direct_embedder = DirectClient(embedder, EMBEDDER)
        self.shards = CacheShards(cache, settings)
        self.expiry = expiry = expiry_of(settings)
        normal = load_normaliser()
        embed = Embed(self._direct_embedder, marks, normal)
        self.counters = CacheCounters()
        placement = self.shards.placement
        self.memory = Memory(
            settings.exact_entries, expiry, self.counters, settings.item_bytes, shards=placement
        )
        self.new_entries = NewEntries(expiry, settings.max_entry_bytes)
        self.look_ups = LookUps(
            self.shards,
            embed,
            self.memory,
            expiry=expiry,
            budget_s=settings.lookup_budget_ms / 1000,
            counters=self.counters,
        )
        self.writes = Writes(settings, self.shards, embed, self.counters)
        self.store = StoreAdmin(
            self.shards, embedder, self.memory, self.counters, settings.call_timeout_s, normal=normal
        )
        self.health = CacheHealth()
        loop = asyncio.get_running_loop()
        self._embedder = embedder
        self._troubles: dict[int, str] = {}
        self._watching = [loop.create_task(self._follow(shard)) for shard in self.shards]
        self._watching.append(loop.create_task(self._watch_embedder()))

    @property
    def breaker_is_open(self) -> bool:
        return self.shards.breaker_is_open

    async def prime(self) -> None:
        """One embedding and one look-up, so that the connections are open before the first request."""
        async with asyncio.timeout(self._call_timeout_s):
            for direct in (self._direct_embedder, *(shard.direct for shard in self.shards)):
                await direct.refresh()
            await self._direct_embedder.call("embed", ["warm-up"], "")
            for shard in self.shards:
                self._note_stats(shard, await shard.direct.call("stats"))
        self.health.started()

    async def close(self) -> None:
        for task in self._watching:
            task.cancel()
        self.writes.stop()
        self.look_ups.stop()
        await self._direct_embedder.close()
        await self.shards.close()

    async def _follow(self, shard: Shard) -> None:
        """Empty the memory after a purge of the shard; report to it which of its entries answered here."""
        while True:
            try:
                stats = await self.store.stats_of(shard)
                self.memory.follow(stats.epoch, shard.number)
                self._note_stats(shard, stats)
                uses = self.memory.take_uses(shard.number)
                if uses:
                    await self.store.used(shard, uses)
            except Exception as error:  # the store is away; look-ups notice and open the breaker
                logger.debug("cache epoch not known: %s", error)
                self._note_trouble(shard, "does not answer")
            await asyncio.sleep(EPOCH_PERIOD_S)

    def _note_stats(self, shard: Shard, stats: CacheStats) -> None:
        self._note_trouble(shard, None if stats.error is None else "reports an error")

    def _note_trouble(self, shard: Shard, trouble: str | None) -> None:
        """The store works when all its shards do."""
        if trouble is None:
            self._troubles.pop(shard.number, None)
        else:
            self._troubles[shard.number] = trouble
        if self._troubles:
            self.health.failed(Part.STORE, self._troubles[min(self._troubles)])
        else:
            self.health.well(Part.STORE)

    async def _watch_embedder(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._call_timeout_s):
                    await self._embedder.describe.remote()
                self.health.well(Part.EMBEDDER)
            except Exception as error:
                logger.debug("embedder not known: %s", error)
                self.health.failed(Part.EMBEDDER, "does not answer")
            await asyncio.sleep(EMBEDDER_PERIOD_S)
