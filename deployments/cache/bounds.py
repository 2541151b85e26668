"""Keeps the cache within its bounds: counts what is written, and evicts what is worth least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from deployments.cache.store import CacheStore
from serve_app.cache.entry import Annotation, CacheEntry
from serve_app.cache.eviction import Bounds, Volume, surplus, worth

MOST_NOTED = 2000
"""Entries whose uses are written down at once: each is a write."""

CHARACTERS_PER_TOKEN = 4
"""Roughly, of English text."""

MOST_REMEMBERED = 50_000
"""Entries whose uses wait to be written down; those that come beyond are not counted."""


class CacheRoom:
    """One writer, in the cache's event loop. Between counts it goes by what it wrote itself."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = Volume()  # what fits before the store must be counted again
        self._tenant_left: dict[str, int] = {}
        self._floor = 0.0
        self._uses: Counter[UUID] = Counter()

    def valued(self, entry: CacheEntry) -> CacheEntry:
        """A new entry with its value; the answer that it was made for is its first use."""
        uses = max(1, entry.uses)
        return replace(entry, uses=uses, value=self._worth(entry, uses))

    def used(self, uses: Mapping[UUID, int]) -> None:
        """Entries that answered so many times."""
        for entry_id, count in uses.items():
            if entry_id in self._uses or len(self._uses) < MOST_REMEMBERED:
                self._uses[entry_id] += count

    async def note_uses(self, store: CacheStore) -> None:
        """Write down what was used since the last time.

        Raises:
            StoreError: the store failed; the rest is for the next time.
        """
        for entry_id, count in self._uses.most_common(MOST_NOTED):
            entry = await store.get(entry_id)
            if entry is not None:
                uses = entry.uses + count
                await store.annotate(entry_id, Annotation(uses=uses, value=self._worth(entry, uses)))
            del self._uses[entry_id]

    async def take(self, store: CacheStore, entry: CacheEntry) -> None:
        """An entry was written: make room if a bound no longer holds.

        Raises:
            StoreError: the store failed; the next write tries again.
        """
        fits = self._left.entries > 0 and (self._bounds.size is None or self._left.size > entry.size)
        self._left -= Volume(1, entry.size)
        if self._bounds.tenant_entries is not None:
            left = self._tenant_left.get(entry.tenant, 0)
            self._tenant_left[entry.tenant] = left - 1
            fits = fits and left > 0
        if not fits:
            await self._make(store)

    async def recount(self, store: CacheStore) -> None:
        """Others may write to the same store; this asks only for the number of entries.

        Raises:
            StoreError: the store failed.
        """
        self._left = replace(self._left, entries=max(0, self._bounds.entries - await store.count()))

    async def _make(self, store: CacheStore) -> None:
        held = await store.usage()
        for tenant, volume in surplus(held, self._bounds).items():
            evicted = await store.evict(tenant, volume)
            held[tenant] -= evicted.volume
            self._floor = max(self._floor, evicted.value)
        total = sum(held.values(), Volume())
        bounds = self._bounds
        self._left = Volume(bounds.entries, bounds.size or 0) - total
        if bounds.tenant_entries is not None:
            self._tenant_left = {
                tenant: bounds.tenant_entries - volume.entries for tenant, volume in held.items()
            }

    def _worth(self, entry: CacheEntry, uses: int) -> float:
        # An answer that no engine made was given by hand, and has no count of tokens.
        cost = entry.answer.usage.completion_tokens or len(entry.answer.text) / CHARACTERS_PER_TOKEN
        return worth(self._floor, uses, cost, entry.size)
