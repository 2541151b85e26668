"""The SemanticCache deployment: it owns the store, and decides what is a hit.

One replica, because the embedded store is one folder. A store that cannot be opened does not stop
the application: the cache reports the error and every look-up is a miss.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from ray.serve.handle import DeploymentHandle

from deployments.store import CacheStore, StoreError, open_store
from serve_app.cache.decision import Evidence, refusal
from serve_app.cache.entry import CacheEntry, CacheQuery, CacheStats, Hit, Selection
from serve_app.settings import CacheSettings

T = TypeVar("T")
logger = logging.getLogger("ray.serve")

SWEEP_PERIOD_S = 30.0
REOPEN_PERIOD_S = 5.0
REMEMBERED_PURGES = 1024
"""Far more than happen while an answer waits in a gateway's write queue."""

EVICTION_SLACK = 0.05
"""Evict this share below the bound at once, so that not every insert evicts."""


class SemanticCache:
    """Look-ups and writes, on one thread: the embedded engine is called by one thread at a time."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: CacheSettings, embedder: DeploymentHandle[Any], reopen_s: float = REOPEN_PERIOD_S
    ) -> None:
        info = await embedder.describe.remote()
        self._settings = settings
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache-store")
        self._embedder = info
        self._reopen_s = reopen_s
        self._epoch = time.time_ns()  # a restarted cache has a later epoch than any before
        self._purges: deque[tuple[Selection, float]] = deque(maxlen=REMEMBERED_PURGES)
        self._error = ""
        self._store = self._try_open()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())

    async def look_up(self, query: CacheQuery) -> Hit | None:
        """The entry that answers the query: the same text, else a near one if there is a vector.

        Raises:
            StoreError: the store failed (the gateway counts this and goes on without).
        """
        return await self._run(lambda store: self._look_up(store, query, time.time()))

    async def put(self, entry: CacheEntry) -> None:
        """Store an entry, evicting the oldest ones beyond the bound."""
        await self._run(lambda store: self._put(store, entry))

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._run(lambda store: store.select(selection, limit))

    async def delete(self, selection: Selection) -> int:
        """Remove entries here and, through the epoch, from every gateway's memory."""
        return await self._run(lambda store: self._delete(store, selection))

    async def stats(self) -> CacheStats:
        if self._store is None:
            return CacheStats(0, self._epoch, "", self._error)
        count = await self._run(lambda store: store.count())
        return CacheStats(count, self._epoch, self._store.location)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """End the sweeper and release the folder. Serve calls it through ``__del__``."""
        self._sweeper.cancel()
        if self._store is not None:
            store, self._store = self._store, None
            await asyncio.get_running_loop().run_in_executor(self._thread, store.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[CacheStore], T]) -> T:
        store = self._store
        if store is None:
            raise StoreError(self._error)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, store)

    def _try_open(self) -> CacheStore | None:
        try:
            return open_store(self._settings, self._embedder.dimension, self._embedder.name)
        except (StoreError, OSError) as error:
            if str(error) != self._error:  # once, not at every attempt
                logger.error("serving without the cache: %s", error)
            self._error = str(error)
            return None

    # What follows runs on the store's thread, one call after the other: a look-up's epoch is that of the
    # store it saw, and no write slips between a purge and its record.

    def _look_up(self, store: CacheStore, query: CacheQuery, now: float) -> Hit | None:
        hit = _find(store, query, self._settings.threshold, now)
        return None if hit is None else replace(hit, epoch=self._epoch)

    def _delete(self, store: CacheStore, selection: Selection) -> int:
        try:
            return store.delete(selection)
        finally:
            self._purges.append((selection, time.time()))
            self._epoch += 1

    def _put(self, store: CacheStore, entry: CacheEntry) -> None:
        if self._was_purged(entry):
            return
        store.put(entry)
        surplus = store.count() - self._settings.max_entries
        if surplus > 0:
            store.delete_oldest(surplus + int(self._settings.max_entries * EVICTION_SLACK))

    def _was_purged(self, entry: CacheEntry) -> bool:
        """Made before a purge that meant it, and still on its way from a gateway when that ran."""
        return any(entry.created_at <= when and what.fits(entry) for what, when in self._purges)

    async def _sweep_forever(self) -> None:
        """Expired entries never answer; this frees their space. A store that would not open is tried again:
        the replica before this one may have held it."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_S if self._store is not None else self._reopen_s)
            if self._store is None:
                self._store = self._try_open()
                continue
            try:
                await self._run(lambda store: store.delete_expired(time.time()))
            except StoreError as error:
                logger.warning("cache sweep failed: %s", error)


def _find(store: CacheStore, query: CacheQuery, default_threshold: float, now: float) -> Hit | None:
    same = store.get(query.entry_id)
    if same is not None and same.is_fresh(now, query.max_age_s):
        return Hit(same)
    if query.vector is None:
        return None
    oldest = 0.0 if query.max_age_s is None else now - query.max_age_s
    near = store.nearest(query.partition, query.vector, now, oldest)
    if near is None:
        return None
    threshold = default_threshold if query.threshold is None else query.threshold
    reason = refusal(Evidence(query.text, near.entry.text, near.similarity, threshold))
    return Hit(near.entry, near.similarity) if reason is None else None
