"""Keeps the cache within its bounds: counts writes, and evicts the least valuable entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from deployments.cache.store import CacheStore
from serve_app.cache.entry import Annotation, CacheEntry
from serve_app.cache.eviction import Bounds, Volume, surplus, worth
from serve_app.cache.shards import ALONE, Place

MOST_NOTED = 2000
"""The most entries whose use counts are saved in one sweep: each costs one write."""

CHARACTERS_PER_TOKEN = 4
"""A rough average for English text."""

MOST_REMEMBERED = 50_000
"""The most entries with unsaved use counts; uses of further entries are not counted."""


class CacheRoom:
    """Tracks how much more the cache may hold. Only the cache's event loop uses it; between two counts of the
    store it relies on its own tally of writes.

    ``bounds`` are those of all shards together. If the shards share a store, each may fill an equal part of
    the remaining room before it counts again."""

    def __init__(self, bounds: Bounds, place: Place = ALONE) -> None:
        self._bounds = Bounds(
            place.part(bounds.entries),
            None if bounds.size is None else place.part(bounds.size),
            None if bounds.tenant_entries is None else place.part(bounds.tenant_entries),
        )
        self._writers = place.of if place.shared else 1
        self._left = Volume()  # what still fits before the store must be counted again
        self._tenant_left: dict[str, int] = {}
        self._floor = 0.0
        self._uses: Counter[UUID] = Counter()

    def valued(self, entry: CacheEntry) -> CacheEntry:
        """The new entry with its value; the request that it was made for counts as its first use."""
        uses = max(1, entry.uses)
        return replace(entry, uses=uses, value=self._worth(entry, uses))

    def used(self, uses: Mapping[UUID, int]) -> None:
        """Add to the use counts; ``uses`` maps an entry to the number of its new answers."""
        for entry_id, count in uses.items():
            if entry_id in self._uses or len(self._uses) < MOST_REMEMBERED:
                self._uses[entry_id] += count

    async def note_uses(self, store: CacheStore) -> None:
        """Save the use counts gathered since the last call.

        Raises:
            StoreError: the store failed; the rest is saved by the next call.
        """
        for entry_id, count in self._uses.most_common(MOST_NOTED):
            entry = await store.get(entry_id)
            if entry is not None:
                uses = entry.uses + count
                await store.annotate(entry_id, Annotation(uses=uses, value=self._worth(entry, uses)))
            del self._uses[entry_id]

    async def take(self, store: CacheStore, entry: CacheEntry) -> None:
        """Account for a written entry, and evict if a bound is exceeded.

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
        """Refresh the tally of entries (not of bytes), because other applications may write to the same
        store.

        Raises:
            StoreError: the store failed.
        """
        left = max(0, self._bounds.entries - await store.count())
        self._left = replace(self._left, entries=left // self._writers)

    async def _make(self, store: CacheStore) -> None:
        held = await store.usage()
        for tenant, volume in surplus(held, self._bounds).items():
            evicted = await store.evict(tenant, volume)
            held[tenant] -= evicted.volume
            self._floor = max(self._floor, evicted.value)
        total = sum(held.values(), Volume())
        bounds = self._bounds
        left = Volume(bounds.entries, bounds.size or 0) - total
        self._left = Volume(left.entries // self._writers, left.size // self._writers)
        if bounds.tenant_entries is not None:
            self._tenant_left = {
                tenant: (bounds.tenant_entries - volume.entries) // self._writers
                for tenant, volume in held.items()
            }

    def _worth(self, entry: CacheEntry, uses: int) -> float:
        # An answer that was added by hand has no token count.
        cost = entry.answer.usage.completion_tokens or len(entry.answer.text) / CHARACTERS_PER_TOKEN
        return worth(self._floor, uses, cost, entry.size)
