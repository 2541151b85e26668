"""What administrators do with the store. Unlike a failed look-up, a failed call is reported to its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.shards import CacheShards, Shard
from serve_app.cache.entry import CacheEntry, CacheStats, Selection
from serve_app.cache.normal import Normaliser
from serve_app.cache.shards import Page, merged_page, merged_stats
from serve_app.embedding import Embedding
from serve_app.errors import NotFound

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

T = TypeVar("T")


class StoreAdmin:
    """Every call to a shard has ``call_timeout_s`` seconds; it raises TimeoutError when that is over. It has
    many methods because administrators do that many things with entries, all with the same shards."""

    def __init__(
        self,
        shards: CacheShards,
        embedder: DeploymentHandle[Any],
        memory: Memory,
        counters: CacheCounters,
        call_timeout_s: float,
        *,
        normal: Normaliser,
    ) -> None:
        self._shards = shards
        self._embedder = embedder
        self._normal = normal
        self._memory = memory
        self._counters = counters
        self._call_timeout_s = call_timeout_s

    async def stats(self) -> CacheStats:
        """Statistics of all shards together."""
        each = await self._of_each(self._shards, self.stats_of)
        return merged_stats(each, shared=self._shards.is_shared)

    async def stats_of(self, shard: Shard) -> CacheStats:
        async with self._in_time():
            stats: CacheStats = await shard.handle.stats.remote()
        return stats

    async def used(self, shard: Shard, uses: Mapping[UUID, int]) -> None:
        """Report entries that answered from a gateway's memory, so that the store counts them as used."""
        async with self._in_time():
            await shard.handle.used.remote(uses)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        asked = partial(self._selected, selection=selection, limit=limit)
        found = await self._of_each(self._shards.stores, asked)
        return [entry for entries in found for entry in entries][:limit]

    async def _selected(self, shard: Shard, selection: Selection, limit: int) -> list[CacheEntry]:
        async with self._in_time():
            entries: list[CacheEntry] = await shard.handle.select.remote(selection, limit)
        return entries

    async def page(self, after: UUID | None, limit: int) -> Page:
        """All entries, page by page, without their vectors."""

        async def asked(shard: Shard) -> Page:
            async with self._in_time():
                found: Page = await shard.handle.page.remote(after, limit)
            return found

        return merged_page(await self._of_each(self._shards.stores, asked), limit)

    async def put(self, entries: Sequence[CacheEntry]) -> None:
        """Store entries that come from elsewhere; their texts are embedded here. It returns when all are
        stored. Raises TimeoutError when one of its calls takes too long; entries stored before that stay."""
        async with self._in_time():
            texts = [self._normal(entry.text) for entry in entries]
            embeddings: list[Embedding] = await self._embedder.embed.remote(texts)
        for entry, embedding in zip(entries, embeddings, strict=True):
            vector = embedding.vector if embedding.is_whole else None
            async with self._in_time():
                await self._shards.of(entry.partition).handle.put.remote(replace(entry, vector=vector))
            self._counters.stored += 1

    async def delete(self, selection: Selection) -> int:
        """Remove entries everywhere; other gateways notice within a second. Where a shard fails, the others
        are purged nevertheless, and its error is raised."""
        deleted, failures = 0, []
        for shard in self._shards:  # one after the other: in a shared store each counts what is left
            try:
                async with self._in_time():
                    deleted += await shard.handle.delete.remote(selection)
            except Exception as error:
                failures.append(error)
        self._memory.remove(selection)
        if failures:
            raise failures[0]
        return deleted

    async def feedback(self, entry_id: UUID, right: bool, text: str | None = None) -> int:
        """A person's verdict on a semantic hit; returns how many entries were dropped. A wrong answer is
        never given to ``text`` again; without a text the entry is dropped.

        Raises:
            NotFound: there is no such entry; nothing is counted.
        """
        shard = await self._owner_of(entry_id)
        dropped: int | None = None
        if shard is not None:
            async with self._in_time():
                dropped = await shard.handle.report.remote(entry_id, right, text)
        if dropped is None:
            raise NotFound(f"No entry {entry_id}: it was dropped, or never stored.", code="no_such_entry")
        if right:
            self._counters.reported_right += 1
        else:
            self._counters.reported_wrong += 1
        if not right and text is None:
            if len(self._shards.stores) > 1:
                # A shard that owned it while there was another number of them may hold it still, and would
                # answer with it when there are as many again.
                with suppress(Exception):
                    await self.delete(Selection(entry_id=entry_id))
            self._memory.remove(Selection(entry_id=entry_id))
        return dropped

    async def refuse(self, tenant: str, entry_id: UUID, hashed: str, *, wrong: bool) -> bool:
        """A user's verdict on a semantic hit of the own tenant: whether that entry's answer is wrong for the
        text with this hash. False: the tenant has no such entry."""
        shard = await self._owner_of(entry_id)
        if shard is None:
            return False
        async with self._in_time():
            known: bool = await shard.handle.refuse.remote(tenant, entry_id, hashed, wrong)
        return known

    async def _owner_of(self, entry_id: UUID) -> Shard | None:
        """The shard of an entry: its id does not say it. ``None``: there is no such entry. A shard that is
        broken keeps no entry of another one from being found."""
        if len(self._shards) == 1:
            return next(iter(self._shards))
        asked = (self._selected(shard, Selection(entry_id=entry_id), 1) for shard in self._shards.stores)
        failure: BaseException | None = None
        for found in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(found, BaseException):
                failure = found
            elif found:
                return self._shards.of(found[0].partition)
        if failure is not None:
            raise failure
        return None

    async def _of_each(self, shards: Iterable[Shard], ask: Callable[[Shard], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(ask, shards)))

    def _in_time(self) -> asyncio.Timeout:
        return asyncio.timeout(self._call_timeout_s)
