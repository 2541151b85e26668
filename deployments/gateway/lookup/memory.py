"""The exact tier: answers to identical requests, and items of others, in this gateway's memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from deployments.gateway.lookup.counters import CacheCounters
from serve_app.cache.entry import CacheEntry, Hit, Selection
from serve_app.cache.exact import ExactTier
from serve_app.cache.expiry import Expiry
from serve_app.cache.items import ItemTier
from serve_app.cache.keys import CacheKey
from serve_app.request.cache_controls import CacheControls
from serve_app.request.timing import Timeline


class Memory:
    """Entries since the last purge that this gateway knows of. The store's epoch counts purges."""

    def __init__(self, size: int, expiry: Expiry, counters: CacheCounters, item_bytes: int = 0) -> None:
        self._entries = ExactTier(size)
        self.items = ItemTier(item_bytes)
        self._expiry = expiry
        self._counters = counters
        self._epoch: int | None = None
        self._used: Counter[UUID] = Counter()

    def get(self, key: CacheKey, controls: CacheControls, timeline: Timeline) -> Hit | None:
        now = time.time()
        with timeline.step("exact"):
            entry = self._entries.get(key.entry_id, now)
        if entry is None or not entry.is_fresh(now, controls.max_age_s):
            return None
        self._counters.exact += 1
        self._used[key.entry_id] += 1  # taken every second, so it needs no size limit
        return Hit(entry, stale=self._expiry.is_stale(entry.expires_at, now))

    def put(self, entry: CacheEntry) -> None:
        self._entries.put(entry)

    def put_found(self, entry: CacheEntry, epoch: int) -> None:
        """Keep an entry of the store, unless it was found before a purge that is known here by now."""
        if self.follow(epoch):
            self._entries.put(entry)

    def remove(self, selection: Selection) -> None:
        self._entries.remove(selection)
        self.items.remove(selection)

    def is_purged(self, epoch: int) -> bool:
        """An entry found at ``epoch`` may have been purged since."""
        return self._epoch is not None and epoch < self._epoch

    def follow(self, epoch: int) -> bool:
        """Forget everything if the store was purged; ``False`` if ``epoch`` is older than the known one."""
        if self.is_purged(epoch):
            return False
        if self._epoch is not None and epoch > self._epoch:
            self._entries.clear()
            self.items.clear()
        self._epoch = epoch
        return True

    def take_uses(self) -> Mapping[UUID, int]:
        """How often each entry has answered since the last call."""
        uses, self._used = self._used, Counter()
        return uses
