"""Items in this gateway's memory: which of a request's are known, and keeping those that an engine gave."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from deployments.gateway.lookup.memory import Memory
from serve_app.cache.expiry import Expiry
from serve_app.cache.items import Item
from serve_app.cache.keys import CacheKey
from serve_app.request.cache_controls import CacheControls
from serve_app.request.timing import Timeline

NO_ENTRY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class ItemTerms:
    """Whose items they are, and how long they may be kept. ``text`` is what rules search; ``purges``: what
    the tier counted when the request came."""

    tenant: str
    model: str
    text: str
    headers: Mapping[str, str]
    controls: CacheControls
    purges: int = 0


class ItemCache:
    """``uncached``: the models whose answers are not kept. ``partition_by``: see the cache's setting."""

    def __init__(
        self, memory: Memory, expiry: Expiry, uncached: Collection[str], partition_by: Sequence[str]
    ) -> None:
        self._items = memory.items
        self._expiry = expiry
        self._uncached = frozenset(uncached)
        self.partition_by = partition_by

    def keeps(self, model: str) -> bool:
        return model not in self._uncached

    def find(self, keys: Sequence[bytes], terms: ItemTerms, timeline: Timeline) -> list[bytes | None]:
        """The value of each key; ``None`` for those that are not known, or not asked for."""
        if not terms.controls.read:
            return [None] * len(keys)
        now, max_age_s = time.time(), terms.controls.max_age_s
        with timeline.step("exact"):
            found = [self._items.get(key, now, max_age_s) for key in keys]
        return [None if item is None else item.value for item in found]

    def at_begin(self, terms: ItemTerms) -> ItemTerms:
        """The terms with the state of the tier before an engine is asked."""
        return replace(terms, purges=self._items.purges)

    def keep(self, keys: Sequence[bytes], values: Sequence[bytes], terms: ItemTerms) -> None:
        """Keep what an engine gave, unless there was a purge since it was asked."""
        if not terms.controls.write or terms.purges != self._items.purges:
            return
        now, tags = time.time(), terms.controls.tags
        key = CacheKey(terms.tenant, terms.model, "", NO_ENTRY, terms.text, semantic=False)
        ttl_s = self._expiry.ttl_s(key, tags, terms.headers, terms.controls.ttl_s)
        if ttl_s <= 0:
            return
        for name, value in zip(keys, values, strict=True):
            self._items.put(name, Item(terms.tenant, terms.model, value, now, now + ttl_s, tags))
