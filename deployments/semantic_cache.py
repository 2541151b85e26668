"""The SemanticCache deployment: it owns the store, and decides what is a hit.

One replica, because the embedded store is one folder. A store that cannot be opened does not stop
the application: the cache reports the error and every look-up is a miss.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.cache_decision import open_decision
from deployments.store import CacheStore, Match, StoreError, open_store
from serve_app.cache.entry import CacheEntry, CacheQuery, CacheStats, Hit, Selection
from serve_app.settings import CacheSettings

logger = logging.getLogger("ray.serve")

SWEEP_PERIOD_S = 30.0
REOPEN_PERIOD_S = 5.0
REMEMBERED_PURGES = 1024
"""Far more than happen while an answer waits in a gateway's write queue."""

EVICTION_SLACK = 0.05
"""Evict this share below the bound at once, so that not every insert evicts."""

CANDIDATES = 3
"""Near entries that the decision may look at; the first that it does not refuse answers."""


class SemanticCache:
    """Look-ups and writes. Look-ups run at the same time as everything; writes and purges one by one.

    A look-up carries the epoch from before it asked the store, and never an entry that a purge meant which
    ended before the look-up did. No write slips between a purge and its record.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: CacheSettings, embedder: DeploymentHandle[Any], reopen_s: float = REOPEN_PERIOD_S
    ) -> None:
        info = await embedder.describe.remote()
        self._settings = settings
        self._embedder = info
        self._decision = await asyncio.to_thread(open_decision, settings, info.source)
        self._refused: Counter[str] = Counter()
        self._reopen_s = reopen_s
        self._epoch = time.time_ns()  # a restarted cache has a later epoch than any before
        self._purges: deque[tuple[Selection, float]] = deque(maxlen=REMEMBERED_PURGES)
        self._writing = asyncio.Lock()
        self._room = 0  # entries that fit before the store must be counted again
        self._error = ""
        self._store = await self._try_open()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())

    async def look_up(self, query: CacheQuery) -> Hit | None:
        """The entry that answers the query: the same text, else a near one if there is a vector.

        Raises:
            StoreError: the store failed (the gateway counts this and goes on without).
        """
        epoch = self._epoch
        hit = await self._find(query, time.time())
        if hit is None or self._was_purged(hit.entry):
            return None
        return replace(hit, epoch=epoch)

    async def put(self, entry: CacheEntry) -> None:
        """Store an entry, evicting the oldest ones beyond the bound."""
        async with self._writing:
            if self._was_purged(entry):
                return
            store = self._opened()
            await store.put(entry)
            self._room -= 1
            if self._room < 0:
                await self._make_room(store)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._opened().select(selection, limit)

    async def delete(self, selection: Selection) -> int:
        """Remove entries here and, through the epoch, from every gateway's memory."""
        async with self._writing:
            try:
                return await self._opened().delete(selection)
            finally:
                self._purges.append((selection, time.time()))
                self._epoch += 1

    async def stats(self) -> CacheStats:
        """Also tells the epoch when the store fails: purges must be known everywhere."""
        if self._store is None:
            return CacheStats(0, self._epoch, "", self._error)
        location = self._store.location
        try:
            count = await self._store.count()
        except StoreError as error:
            return CacheStats(0, self._epoch, location, str(error), dict(self._refused))
        return CacheStats(count, self._epoch, location, refused=dict(self._refused))

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """End the sweeper and release the store. Serve calls it through ``__del__``."""
        self._sweeper.cancel()
        if self._store is not None:
            store, self._store = self._store, None
            await store.close()

    def _opened(self) -> CacheStore:
        if self._store is None:
            raise StoreError(self._error)
        return self._store

    async def _try_open(self) -> CacheStore | None:
        try:
            return await open_store(self._settings, self._embedder.dimension, self._embedder.name)
        except (StoreError, OSError) as error:
            if str(error) != self._error:  # once, not at every attempt
                logger.error("serving without the cache: %s", error)
            self._error = str(error)
            return None

    async def _make_room(self, store: CacheStore) -> None:
        bound = self._settings.max_entries
        surplus = await store.count() - bound
        if surplus > 0:
            evicted = surplus + int(bound * EVICTION_SLACK)
            await store.delete_oldest(evicted)
            surplus -= evicted
        self._room = -surplus

    def _was_purged(self, entry: CacheEntry) -> bool:
        """Made before a purge that meant it: still on its way from a gateway when that ran, or from here to
        the store in a write that was given up."""
        return any(entry.created_at <= when and what.fits(entry) for what, when in self._purges)

    async def _sweep_forever(self) -> None:
        """Expired entries never answer; this frees their space. A store that would not open is tried again:
        the replica before this one may have held it."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_S if self._store is not None else self._reopen_s)
            if self._store is None:
                self._store = await self._try_open()
                continue
            try:
                await self._store.delete_expired(time.time())
            except StoreError as error:
                logger.warning("cache sweep failed: %s", error)
            self._room = 0  # others may write to the same server

    async def _find(self, query: CacheQuery, now: float) -> Hit | None:
        store = self._opened()
        same = await store.get(query.entry_id)
        if same is not None and same.is_fresh(now, query.max_age_s):
            return Hit(same)
        if query.vector is None:
            return None
        oldest = 0.0 if query.max_age_s is None else now - query.max_age_s
        near = await store.nearest(query.partition, query.vector, now, oldest, CANDIDATES)
        return self._first_that_answers(query, near)

    def _first_that_answers(self, query: CacheQuery, near: Sequence[Match]) -> Hit | None:
        """The nearest entry that the decision lets answer; for the nearest of those refused, its reason is
        counted."""
        question = self._decision.read(query.text)
        reasons = []
        for match in near:
            candidate = self._decision.read(match.entry.text)
            verdict = self._decision.judge(question, candidate, match.similarity, query.threshold)
            if verdict.reason is None:
                return Hit(match.entry, match.similarity, score=verdict.scores.get("verifier"))
            reasons.append(verdict.reason)
        self._refused.update(reasons[:1])
        return None
