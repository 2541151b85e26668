"""The cache's periodic work: free expired entries, save what was learned, reopen a failed store."""

from __future__ import annotations

import asyncio
import logging
import time

from deployments.cache.bounds import CacheRoom
from deployments.cache.session import StoreSession
from deployments.cache.store import StoreError, StoreFull

logger = logging.getLogger("ray.serve")

SWEEP_PERIOD_S = 30.0


class Sweeper:
    """Sweeps an open store, and tries again to open a store that could not be opened, for example because the
    previous replica still held its lock."""

    def __init__(self, session: StoreSession, room: CacheRoom, reopen_s: float) -> None:
        """``reopen_s``: seconds between two attempts to open the store."""
        self._session = session
        self._room = room
        self._reopen_s = reopen_s

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_S if self._session.is_open else self._reopen_s)
            if not self._session.is_open:
                await self._session.open()
                continue
            try:
                await self._sweep()
            except StoreFull:
                continue
            except StoreError as error:
                logger.warning("cache sweep failed: %s", error)

    async def _sweep(self) -> None:
        """Free the space of expired entries (they never answer), save what was learned, and count the
        entries."""
        store = self._session.store
        await store.delete_expired(time.time())
        await self._session.save_learning()
        await self._room.note_uses(store)
        await self._room.recount(store)
