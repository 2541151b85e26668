"""The first look-up of a gateway, before any client's."""

from __future__ import annotations

import asyncio
import logging

from deployments.gateway.lookup.store_client import CacheClient

RETRY_S = 0.5

logger = logging.getLogger("ray.serve")


class Priming:
    """One embedding and one look-up, repeated until both succeed; ``/ready`` waits for ``is_done``. Made
    inside a running event loop; ``stop`` ends it."""

    def __init__(self, cache: CacheClient | None) -> None:
        self._cache = cache
        self.is_done = False
        self._task = asyncio.get_running_loop().create_task(self._prime())

    async def _prime(self) -> None:
        while self._cache is not None:
            try:
                await self._cache.prime()
                break
            except Exception as error:  # the embedder or the store is still starting
                logger.info("waiting for embedder and cache: %s", type(error).__name__)
                await asyncio.sleep(RETRY_S)
        self.is_done = True

    def stop(self) -> None:
        self._task.cancel()
