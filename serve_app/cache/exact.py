"""The exact tier of one gateway: the newest answers, in memory, by key."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from serve_app.cache.entry import CacheEntry, Selection


class ExactTier:
    """A bounded LRU of entries. Vectors are not kept: the semantic tier has its own copy."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[UUID, CacheEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, entry_id: UUID, now: float) -> CacheEntry | None:
        entry = self._entries.get(entry_id)
        if entry is None:
            return None
        if not entry.is_fresh(now):
            del self._entries[entry_id]
            return None
        self._entries.move_to_end(entry_id)
        return entry

    def put(self, entry: CacheEntry) -> None:
        self._entries[entry.entry_id] = entry
        self._entries.move_to_end(entry.entry_id)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    def remove(self, selection: Selection) -> int:
        """Drop the selected entries; returns how many."""
        doomed = [key for key, entry in self._entries.items() if selection.fits(entry)]
        for key in doomed:
            del self._entries[key]
        return len(doomed)
