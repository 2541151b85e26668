"""The exact tier of items (vectors, scores, classes): the newest ones, in memory, by key."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from serve_app.cache.entry import Selection

OVERHEAD = 400
"""Bytes that an item takes besides its value: its key and its slot in the table, times and names (measured on
CPython 3.11 with ``tracemalloc``, rounded up)."""


@dataclass(frozen=True, slots=True)
class Item:
    """``value`` is JSON. Times are Unix seconds."""

    tenant: str
    model: str
    value: bytes
    created_at: float
    expires_at: float
    tags: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.value)

    def is_fresh(self, now: float, max_age_s: float | None) -> bool:
        return now < self.expires_at and (max_age_s is None or now - self.created_at <= max_age_s)


class ItemTier:
    """A bounded LRU of items; ``capacity`` in bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: OrderedDict[bytes, Item] = OrderedDict()
        self._size = 0
        self.purges = 0
        """The number of purges: an item that was requested before a purge must not be stored after it."""

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: bytes, now: float, max_age_s: float | None = None) -> Item | None:
        item = self._items.get(key)
        if item is None or not item.is_fresh(now, max_age_s):
            return None
        self._items.move_to_end(key)
        return item

    def put(self, key: bytes, item: Item) -> None:
        """Store an item, unless it is larger than a tenth of the capacity."""
        if item.size * 10 > self._capacity:
            return
        self._drop(key)
        self._items[key] = item
        self._size += item.size
        while self._size > self._capacity:
            self._drop(next(iter(self._items)))

    def clear(self) -> None:
        self._items.clear()
        self._size = 0
        self.purges += 1

    def remove(self, selection: Selection) -> None:
        """Drop the selected items. A selection by an entry's id selects no items."""
        self.purges += 1
        if selection.entry_id is not None:
            return
        for key in [key for key, item in self._items.items() if _fits(selection, item)]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._size -= item.size


def _fits(selection: Selection, item: Item) -> bool:
    return (
        selection.tenant in (None, item.tenant)
        and selection.model in (None, item.model)
        and (selection.tag is None or selection.tag in item.tags)
    )
