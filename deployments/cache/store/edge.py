"""The embedded store: Qdrant in this process, on a local folder (``qdrant-edge-py``).

Qdrant's write-ahead log locks the folder while it is open, so only one process can use it. Each embedder has
its own folder, so vectors of two models are never compared.

Qdrant Edge builds a vector index only in ``optimize()``, which takes minutes for a cache's volume, holds the
GIL, and must be repeated after entries were added. So there is no index: in a partition of more than about a
thousand entries, a sketch of the vectors (``edge_sketch.py``) selects those that Qdrant compares.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from deployments.cache.store.base import Evicted, Match, StoreError
from deployments.cache.store.conditions import Condition, expired, selected
from deployments.cache.store.disk_floor import DiskFloor, FreeBytes, free_bytes
from deployments.cache.store.edge_shard import Shard, open_shard
from deployments.cache.store.edge_thread import StoreThread
from deployments.cache.store.payload import EvictionTally, generation
from serve_app.cache.entry import Annotation, CacheEntry, Selection
from serve_app.cache.eviction import Volume

logger = logging.getLogger(__name__)

SKETCH_FROM = 1000
"""Partition size (entries) from which on the sketch is faster than Qdrant alone."""


class EdgeStore:
    """A :class:`~deployments.cache.store.base.CacheStore` on one shard; it runs the shard's calls on a
    thread. It has this many methods because the contract has them."""

    def __init__(self, shard: Shard, path: Path, thread: StoreThread) -> None:
        self._shard = shard
        self._path = path
        self._thread = thread
        self._mending: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: str,
        dimension: int,
        embedder: str,
        sketch_from: int = SKETCH_FROM,
        *,
        min_free_bytes: int = 0,
        free: FreeBytes = free_bytes,
    ) -> EdgeStore:
        """Open or create the shard for ``embedder`` under ``folder``. After a crash, or if there is no sketch
        yet, a sketch is built in the background; until then searches compare whole partitions. The store
        leaves ``min_free_bytes`` of the disk free, as measured by ``free``.

        Raises:
            StoreFull: less than ``min_free_bytes`` is free; nothing was touched.
            StoreError: the folder is locked by another process, unreadable or damaged.
        """
        path = _path(folder, embedder, dimension)
        thread = StoreThread(path, DiskFloor(path, min_free_bytes, free))
        try:
            shard = await thread.call(partial(open_shard, path, dimension, sketch_from), adds=True)
        except BaseException:
            thread.abandon()
            raise
        store = cls(shard, path, thread)
        if not shard.search.is_sketched:
            store._mending = asyncio.get_running_loop().create_task(store._mend())
        return store

    @property
    def location(self) -> str:
        return str(self._path)

    async def get(self, entry_id: UUID) -> CacheEntry | None:
        return await self._thread.call(partial(self._shard.get, entry_id))

    async def nearest(
        self, partition: str, vector: bytes, now: float, oldest: float, limit: int
    ) -> list[Match]:
        search = self._shard.search
        return await self._thread.call(partial(search.nearest, partition, vector, now, oldest, limit))

    async def put(self, entry: CacheEntry) -> None:
        await self._thread.call(partial(self._shard.put, entry), adds=True)

    async def annotate(self, entry_id: UUID, annotation: Annotation) -> None:
        await self._thread.call(partial(self._shard.annotate, entry_id, annotation), adds=True)

    async def read_note(self) -> str | None:
        return await self._thread.call(self._shard.read_note)

    async def write_note(self, note: str) -> None:
        await self._thread.call(partial(self._shard.write_note, note), adds=True)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._thread.call(partial(self._shard.select, selected(selection), limit))

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        return await self._thread.call(partial(self._shard.page, after, limit))

    async def delete(self, selection: Selection) -> int:
        return await self._delete(selected(selection))

    async def delete_expired(self, now: float) -> int:
        return await self._delete(expired(now))

    async def evict(self, tenant: str, volume: Volume) -> Evicted:
        tally = EvictionTally(volume)
        gone = 1
        while gone and not tally.is_full:
            gone = await self._thread.call(partial(self._shard.evict, tenant, tally))
        return tally.gone

    async def usage(self) -> dict[str, Volume]:
        held: dict[str, Volume] = {}
        after: Any = None
        while True:
            after = await self._thread.call(partial(self._shard.add_volumes, held, after))
            if after is None:
                return held

    async def count(self) -> int:
        return await self._thread.call(self._shard.count)

    @property
    def is_settled(self) -> bool:
        """Whether the sketch is complete, and used for large partitions; see :meth:`settle`."""
        return self._shard.search.is_sketched

    async def settle(self) -> None:
        """Wait until the sketch is complete. It is complete at once, unless the store was opened after a
        crash or without a sketch."""
        if self._mending is not None:
            await asyncio.wait([self._mending])

    async def close(self) -> None:
        if not self._thread.is_open:
            return
        if self._mending is not None:
            self._mending.cancel()
        await self._thread.close(self._shard.close)

    async def _delete(self, condition: Condition) -> int:
        return await self._thread.call(partial(self._shard.delete, condition))

    async def _mend(self) -> None:
        search = self._shard.search
        try:
            mending = await self._thread.call(search.mending)
            while not await self._thread.call(partial(search.mend, mending)):
                pass
        except StoreError as error:
            logger.warning("searches will be slow in large partitions: %s", error)


def _path(folder: str, embedder: str, dimension: int) -> Path:
    return Path(folder).expanduser() / generation(embedder, dimension)
