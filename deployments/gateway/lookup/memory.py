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
from serve_app.cache.shards import Shards
from serve_app.request.cache_controls import CacheControls
from serve_app.request.timing import Timeline


class Memory:
    """Entries since the last purge that this gateway knows of. Each shard's epoch counts the purges there."""

    def __init__(
        self,
        size: int,
        expiry: Expiry,
        counters: CacheCounters,
        item_bytes: int = 0,
        *,
        shards: Shards,
    ) -> None:
        self._entries = ExactTier(size)
        self.items = ItemTier(item_bytes)
        self._expiry = expiry
        self._counters = counters
        self._shards = shards
        self._epochs: dict[int, int] = {}
        self._used: list[Counter[UUID]] = [Counter() for _ in range(shards.count)]

    def get(self, key: CacheKey, controls: CacheControls, timeline: Timeline) -> Hit | None:
        now = time.time()
        with timeline.step("exact"):
            entry = self._entries.get(key.entry_id, now)
        if entry is None or not entry.is_fresh(now, controls.max_age_s):
            return None
        self._counters.exact += 1
        # Taken every second, so it needs no size limit.
        self._used[self._shards.owner(key.partition)][key.entry_id] += 1
        return Hit(entry, stale=self._expiry.is_stale(entry.expires_at, now))

    def put(self, entry: CacheEntry) -> None:
        self._entries.put(entry)

    def put_found(self, entry: CacheEntry, epoch: int) -> None:
        """Keep an entry of the store, unless it was found before a purge that is known here by now."""
        if self.follow(epoch, self._shards.owner(entry.partition)):
            self._entries.put(entry)

    def remembered(self, entry_id: UUID) -> Hit | None:
        """The entry, for another gateway, and the epoch of its shard as it is known here."""
        entry = self._entries.get(entry_id, time.time())
        if entry is None:
            return None
        epoch = self._epochs.get(self._shards.owner(entry.partition))
        return None if epoch is None else Hit(entry, epoch=epoch)

    def take_in(self, hit: Hit, controls: CacheControls) -> bool:
        """What another gateway remembers answers a request whose look-up has missed. False: not where this
        gateway knows of a later purge, or the request accepts none so old."""
        if not hit.entry.is_fresh(time.time(), controls.max_age_s):
            return False
        if not self.follow(hit.epoch, self._shards.owner(hit.entry.partition)):
            return False
        self._entries.put(hit.entry)
        self._counters.misses -= 1
        self._counters.exact += 1
        return True

    def remove(self, selection: Selection) -> None:
        self._entries.remove(selection)
        self.items.remove(selection)

    def is_purged(self, partition: str, epoch: int) -> bool:
        """An entry of the partition that was found at ``epoch`` may have been purged since."""
        return epoch < self._epochs.get(self._shards.owner(partition), 0)

    def follow(self, epoch: int, shard: int) -> bool:
        """Forget everything if the shard was purged; ``False`` if ``epoch`` is older than the known one."""
        known = self._epochs.get(shard)
        if known is not None and epoch < known:
            return False
        if known is not None and epoch > known:
            self._entries.clear()
            self.items.clear()
        self._epochs[shard] = epoch
        return True

    def take_uses(self, shard: int) -> Mapping[UUID, int]:
        """How often each entry of the shard has answered since the last call."""
        uses, self._used[shard] = self._used[shard], Counter()
        return uses
