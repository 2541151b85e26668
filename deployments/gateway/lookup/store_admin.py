"""What administrators do with the store. Unlike a failed look-up, a failed call is reported to its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.memory import Memory
from serve_app.cache.entry import CacheEntry, CacheStats, Selection
from serve_app.cache.normal import Normaliser
from serve_app.embedding import Embedding
from serve_app.errors import NotFound

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class StoreAdmin:
    """Every call has ``call_timeout_s`` seconds; it raises TimeoutError when that is over."""

    def __init__(
        self,
        cache: DeploymentHandle[Any],
        embedder: DeploymentHandle[Any],
        memory: Memory,
        counters: CacheCounters,
        call_timeout_s: float,
        *,
        normal: Normaliser,
    ) -> None:
        self._cache = cache
        self._embedder = embedder
        self._normal = normal
        self._memory = memory
        self._counters = counters
        self._call_timeout_s = call_timeout_s

    async def stats(self) -> CacheStats:
        async with self._in_time():
            stats: CacheStats = await self._cache.stats.remote()
        return stats

    async def used(self, uses: Mapping[UUID, int]) -> None:
        """Report entries that answered from a gateway's memory, so that the store counts them as used."""
        async with self._in_time():
            await self._cache.used.remote(uses)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        async with self._in_time():
            entries: list[CacheEntry] = await self._cache.select.remote(selection, limit)
        return entries

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """All entries, page by page, without their vectors."""
        async with self._in_time():
            found: tuple[list[CacheEntry], UUID | None] = await self._cache.page.remote(after, limit)
        return found

    async def put(self, entries: Sequence[CacheEntry]) -> None:
        """Store entries that come from elsewhere; their texts are embedded here. It returns when all are
        stored. Raises TimeoutError when one of its calls takes too long; entries stored before that stay."""
        async with self._in_time():
            texts = [self._normal(entry.text) for entry in entries]
            embeddings: list[Embedding] = await self._embedder.embed.remote(texts)
        for entry, embedding in zip(entries, embeddings, strict=True):
            vector = embedding.vector if embedding.is_whole else None
            async with self._in_time():
                await self._cache.put.remote(replace(entry, vector=vector))
            self._counters.stored += 1

    async def delete(self, selection: Selection) -> int:
        """Remove entries everywhere; other gateways notice within a second."""
        async with self._in_time():
            deleted: int = await self._cache.delete.remote(selection)
        self._memory.remove(selection)
        return deleted

    async def feedback(self, entry_id: UUID, right: bool, text: str | None = None) -> int:
        """A person's verdict on a semantic hit; returns how many entries were dropped. A wrong answer is
        never given to ``text`` again; without a text the entry is dropped.

        Raises:
            NotFound: there is no such entry; nothing is counted.
        """
        async with self._in_time():
            dropped: int | None = await self._cache.report.remote(entry_id, right, text)
        if dropped is None:
            raise NotFound(f"No entry {entry_id}: it was dropped, or never stored.", code="no_such_entry")
        if right:
            self._counters.reported_right += 1
        else:
            self._counters.reported_wrong += 1
        if not right and text is None:
            self._memory.remove(Selection(entry_id=entry_id))
        return dropped

    async def refuse(self, tenant: str, entry_id: UUID, hashed: str, *, wrong: bool) -> bool:
        """A user's verdict on a semantic hit of the own tenant: whether that entry's answer is wrong for the
        text with this hash. False: the tenant has no such entry."""
        async with self._in_time():
            known: bool = await self._cache.refuse.remote(tenant, entry_id, hashed, wrong)
        return known

    def _in_time(self) -> asyncio.Timeout:
        return asyncio.timeout(self._call_timeout_s)
