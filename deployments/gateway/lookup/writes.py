"""Writes to the store, through a bounded queue: none of them delays a response."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from uuid import UUID

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.look_ups import Embed
from deployments.gateway.lookup.shards import CacheShards
from deployments.platform.serve import cause_of
from serve_app.cache.entry import CacheEntry, Probe
from serve_app.openai.answers import Answer
from serve_app.settings import CacheSettings

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """An entry that is to be stored. Its vector is made here if the look-up made none."""

    entry: CacheEntry
    vector: bytes | None
    semantic: bool

    @property
    def partition(self) -> str:
        return self.entry.partition


@dataclass(frozen=True, slots=True)
class PendingComparison:
    """An engine's answer that is to be compared with that of a near entry, of the same partition."""

    partition: str
    probe: Probe
    fresh: str


@dataclass(frozen=True, slots=True)
class PendingVerdict:
    """The served model's verdict on a pair, of one partition."""

    partition: str
    entry_id: UUID
    text: str
    serves: bool


Pending = PendingWrite | PendingComparison | PendingVerdict


class Writes:
    """A full queue drops new writes: the next miss makes them again."""

    def __init__(
        self,
        settings: CacheSettings,
        shards: CacheShards,
        embed: Embed,
        counters: CacheCounters,
    ) -> None:
        self._call_timeout_s = settings.call_timeout_s
        self._shards = shards
        self._embed = embed
        self._counters = counters
        self._queue: asyncio.Queue[Pending] = asyncio.Queue(settings.write_queue)
        self._task = asyncio.get_running_loop().create_task(self._write_forever())

    def __len__(self) -> int:
        return self._queue.qsize()

    def add(self, entry: CacheEntry, vector: bytes | None, *, semantic: bool) -> None:
        self._put(PendingWrite(entry, vector, semantic))

    def compare(self, partition: str, probe: Probe, fresh: Answer) -> None:
        """Have a complete answer compared with the near entry's."""
        self._counters.explored += 1
        self._put(PendingComparison(partition, probe, fresh.text))

    def add_verdict(self, partition: str, entry_id: UUID, text: str, serves: bool) -> None:
        """Remember the served model's verdict for later requests."""
        self._put(PendingVerdict(partition, entry_id, text, serves))

    def stop(self) -> None:
        self._task.cancel()

    def _put(self, pending: Pending) -> None:
        """Writes nothing while the breaker is open: embedding and failed calls would only slow requests."""
        if self._shards.of(pending.partition).breaker.is_open:
            self._counters.dropped += 1
            return
        try:
            self._queue.put_nowait(pending)
        except asyncio.QueueFull:
            self._counters.dropped += 1

    async def _write_forever(self) -> None:
        while True:
            pending = await self._queue.get()
            try:
                async with asyncio.timeout(self._call_timeout_s):
                    await self._settle(pending)
            except Exception as error:  # an answer that is not stored is only a miss later
                # The breaker does not count it: a store that cannot be written may still answer look-ups.
                self._counters.failures += 1
                logger.warning("the cache lost a %s: %r", type(pending).__name__, cause_of(error))

    async def _settle(self, pending: Pending) -> None:
        cache = self._shards.of(pending.partition).handle
        match pending:
            case PendingWrite():
                await self._write(pending)
            case PendingComparison(_, probe, fresh):
                await cache.observe.remote(probe, fresh)
            case PendingVerdict(_, entry_id, text, serves):
                await cache.judged.remote(entry_id, text, serves)

    async def _write(self, pending: PendingWrite) -> None:
        vector = pending.vector
        if vector is None and pending.semantic:
            vector = await self._embed(pending.entry.text, pending.entry.tenant)
        cache = self._shards.of(pending.partition).handle
        await cache.put.remote(replace(pending.entry, vector=vector))
        self._counters.stored += 1
