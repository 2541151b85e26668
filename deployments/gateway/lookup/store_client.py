"""The gateway's side of the cache: its own exact tier, and the semantic tier behind a breaker.

A cache that is broken or slow costs at most the look-up budget, then nothing: the breaker opens and
requests flow as misses. No failure here reaches a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ray.serve.handle import DeploymentHandle

from deployments.platform.serve import cause_of
from deployments.wire.direct_calls import DirectClient
from serve_app.breaker import Breaker
from serve_app.cache.entry import (
    CacheEntry,
    CacheQuery,
    CacheStats,
    Doubt,
    Hit,
    LookUp,
    Miss,
    Probe,
    Selection,
)
from serve_app.cache.exact import ExactTier
from serve_app.cache.expiry import expiry_of
from serve_app.cache.keys import CacheKey
from serve_app.embedding import Embedding
from serve_app.errors import NotFound
from serve_app.openai.answers import Answer, encode_answer
from serve_app.request.cache_controls import CacheControls
from serve_app.request.tenant_marks import TenantMarks
from serve_app.request.timing import Timeline
from serve_app.settings import CacheSettings
from serve_app.wire.calls import CACHE, EMBEDDER

EPOCH_PERIOD_S = 1.0

logger = logging.getLogger("ray.serve")


@dataclass(slots=True)
class CacheCounters:
    """Since this gateway started."""

    exact: int = 0
    semantic: int = 0
    misses: int = 0
    explored: int = 0
    asked: int = 0
    failures: int = 0
    stored: int = 0
    dropped: int = 0
    reported_right: int = 0
    reported_wrong: int = 0


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """An entry on its way to the store. The vector is made when the look-up did not leave one."""

    entry: CacheEntry
    vector: bytes | None
    semantic: bool


@dataclass(frozen=True, slots=True)
class PendingComparison:
    """An engine's answer on its way to be compared with that of an entry near to its question."""

    probe: Probe
    fresh: str


@dataclass(frozen=True, slots=True)
class PendingVerdict:
    """What the served model said of a pair."""

    entry_id: UUID
    text: str
    serves: bool


Pending = PendingWrite | PendingComparison | PendingVerdict


class CacheClient:
    """Look-ups in order of cost; writes through a bounded queue, off the response path."""

    def __init__(
        self,
        settings: CacheSettings,
        embedder: DeploymentHandle[Any],
        cache: DeploymentHandle[Any],
        marks: TenantMarks,
    ) -> None:
        self._settings = settings
        self._marks = marks
        self._embedder = embedder
        self._cache = cache
        # For the calls of a look-up; all others have time.
        self._direct_embedder = DirectClient(embedder, EMBEDDER)
        self._direct_cache = DirectClient(cache, CACHE)
        self._expiry = expiry_of(settings)
        self._exact = ExactTier(settings.exact_entries)
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_cooldown_s)
        self._writes: asyncio.Queue[Pending] = asyncio.Queue(settings.write_queue)
        self._epoch: int | None = None
        self._used: Counter[UUID] = Counter()
        self._trials: set[asyncio.Task[LookUp]] = set()
        self.counters = CacheCounters()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._write_forever()), loop.create_task(self._follow_epoch())]

    async def prime(self) -> None:
        """One embedding and one look-up, so that the first request finds the way open."""
        async with self._in_time():
            for direct in (self._direct_embedder, self._direct_cache):
                await direct.refresh()
            await self._direct_embedder.call("embed", ["warm-up"], "")
            await self._direct_cache.call("stats")

    @property
    def breaker_is_open(self) -> bool:
        return self._breaker.is_open

    @property
    def queued_writes(self) -> int:
        return self._writes.qsize()

    def exact(self, key: CacheKey, controls: CacheControls, timeline: Timeline) -> Hit | None:
        """The very same request's answer, if this gateway holds it in memory."""
        now = time.time()
        with timeline.step("exact"):
            entry = self._exact.get(key.entry_id, now)
        if entry is None or not entry.is_fresh(now, controls.max_age_s):
            return None
        self.counters.exact += 1
        self._used[key.entry_id] += 1  # within a second it is told, so there is no need of a bound
        return Hit(entry, stale=self._expiry.is_stale(entry.expires_at, now))

    async def look_up(
        self, key: CacheKey, controls: CacheControls, timeline: Timeline, keep: Callable[[bytes], None]
    ) -> LookUp:
        """What the store has; never raises, never takes longer than the budget. ``keep`` is given the text's
        vector as soon as it is made, so that a look-up that is cancelled later was not for nothing."""
        found: LookUp = Miss()
        try:
            found = await self._look_further(key, controls, timeline, keep)
        finally:
            self._count(found)
        return found

    def store(
        self,
        key: CacheKey,
        controls: CacheControls,
        headers: Mapping[str, str],
        answer: Answer,
        vector: bytes | None,
    ) -> None:
        """Queue a complete answer. A full queue drops it: the next miss will bring it again."""
        entry = self.new_entry(key, controls, headers, answer)
        if entry is None:
            return
        self._exact.put(entry)
        self._queue(PendingWrite(entry, vector, key.semantic))

    def judged(self, doubt: Doubt, text: str, serves: bool) -> Hit | None:
        """The served model said whether a near entry serves a text: remembered for everybody. Returns the hit
        that it is now, unless the entry may have been purged in the meantime."""
        self.counters.asked += 1
        self._queue(PendingVerdict(doubt.entry.entry_id, text, serves))
        if not serves or (self._epoch is not None and doubt.epoch < self._epoch):
            return None
        self.counters.misses -= 1
        self.counters.semantic += 1
        return Hit(doubt.entry, doubt.similarity, doubt.epoch, doubt.score)

    def compare(self, probe: Probe, fresh: Answer) -> None:
        """Queue a complete answer to be compared with the near entry's."""
        self.counters.explored += 1
        self._queue(PendingComparison(probe, fresh.text))

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        async with self._in_time():
            entries: list[CacheEntry] = await self._cache.select.remote(selection, limit)
        return entries

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """All entries, page by page, without their vectors."""
        async with self._in_time():
            found: tuple[list[CacheEntry], UUID | None] = await self._cache.page.remote(after, limit)
        return found

    async def put(self, entries: Sequence[CacheEntry]) -> None:
        """Store entries that come from elsewhere; their texts are embedded here. It returns when all are
        stored. Raises TimeoutError when one call of it takes too long; what was stored until then stays."""
        async with self._in_time():
            embeddings: list[Embedding] = await self._embedder.embed.remote([entry.text for entry in entries])
        for entry, embedding in zip(entries, embeddings, strict=True):
            vector = embedding.vector if embedding.is_whole else None
            async with self._in_time():
                await self._cache.put.remote(replace(entry, vector=vector))
            self.counters.stored += 1

    def new_entry(
        self,
        key: CacheKey,
        controls: CacheControls,
        headers: Mapping[str, str],
        answer: Answer,
        operators_ttl_s: float | None = None,
    ) -> CacheEntry | None:
        """The entry for an answer; ``None`` for one that is not to be stored: by a rule, or for its size.
        ``operators_ttl_s`` is an administrator's word: it may be longer than what the settings say."""
        ttl_s = self._expiry.ttl_s(key, controls.tags, headers, controls.ttl_s)
        if operators_ttl_s is not None and ttl_s > 0:
            ttl_s = operators_ttl_s
        if ttl_s <= 0 or len(encode_answer(answer)) + len(key.text) > self._settings.max_entry_bytes:
            return None
        now = time.time()
        return CacheEntry(
            entry_id=key.entry_id,
            tenant=key.tenant,
            model=key.model,
            partition=key.partition,
            text=key.text,
            answer=answer,
            created_at=now,
            expires_at=self._expiry.ends_at(now, ttl_s),
            tags=controls.tags,
        )

    async def delete(self, selection: Selection) -> int:
        """Remove entries everywhere; other gateways notice within a second."""
        async with self._in_time():
            deleted: int = await self._cache.delete.remote(selection)
        self._exact.remove(selection)
        return deleted

    async def feedback(self, entry_id: UUID, right: bool, text: str | None = None) -> int:
        """A person's word on a semantic hit; returns how many entries were dropped. A wrong answer is never
        given to ``text`` again; without a text the entry is dropped.

        Raises:
            NotFound: there is no such entry; nothing is counted.
        """
        async with self._in_time():
            dropped: int | None = await self._cache.report.remote(entry_id, right, text)
        if dropped is None:
            raise NotFound(f"No entry {entry_id}: it was dropped, or never stored.", code="no_such_entry")
        if right:
            self.counters.reported_right += 1
        else:
            self.counters.reported_wrong += 1
        if not right and text is None:
            self._exact.remove(Selection(entry_id=entry_id))
        return dropped

    async def stats(self) -> CacheStats:
        async with self._in_time():
            stats: CacheStats = await self._cache.stats.remote()
        return stats

    def _in_time(self) -> asyncio.Timeout:
        """For one call that is not a look-up."""
        return asyncio.timeout(self._settings.call_timeout_s)

    async def close(self) -> None:
        for task in (*self._tasks, *self._trials):
            task.cancel()
        await self._direct_embedder.close()
        await self._direct_cache.close()

    async def _look_further(
        self, key: CacheKey, controls: CacheControls, timeline: Timeline, keep: Callable[[bytes], None]
    ) -> LookUp:
        is_trial = self._breaker.is_open
        if not self._breaker.allows(time.monotonic()):
            return Miss()
        asking = self._within_budget(key, controls, timeline, keep)
        return await (self._as_trial(asking) if is_trial else asking)

    async def _as_trial(self, asking: Coroutine[Any, Any, LookUp]) -> LookUp:
        """An open breaker waits for how it ends. So it ends within its budget also when its request does not
        wait any longer: in a race the engine's first byte is often there before."""
        task = asyncio.get_running_loop().create_task(asking)
        self._trials.add(task)
        task.add_done_callback(self._trials.discard)
        return await asyncio.shield(task)

    async def _within_budget(
        self, key: CacheKey, controls: CacheControls, timeline: Timeline, keep: Callable[[bytes], None]
    ) -> LookUp:
        try:
            async with asyncio.timeout(self._settings.lookup_budget_ms / 1000):
                found = await self._ask(key, controls, timeline, keep)
        except Exception as error:  # whatever the embedder or the store raises, a request goes on
            self._failed(error)
            return Miss()
        self._breaker.succeeded()
        return found

    async def _ask(
        self, key: CacheKey, controls: CacheControls, timeline: Timeline, keep: Callable[[bytes], None]
    ) -> LookUp:
        vector = None
        if key.semantic:
            with timeline.step("embed"):
                vector = await self._embed(key.text, key.tenant)
            if vector is not None:
                keep(vector)
        with timeline.step("search"):
            query = CacheQuery(
                key.entry_id, key.partition, key.text, vector, controls.threshold, controls.max_age_s
            )
            found: LookUp = await self._direct_cache.call("look_up", query)
        if isinstance(found, Miss) or found.similarity is not None:
            return found
        # A hit from before a purge that is known here by now must not stay in memory.
        if self._follow(found.epoch):
            self._exact.put(found.entry)
        return replace(found, stale=self._expiry.is_stale(found.entry.expires_at, time.time()))

    async def _embed(self, text: str, tenant: str) -> bytes | None:
        """``None`` for a text that the embedder cannot read whole: two texts that differ only in what it did
        not read would look the same."""
        tag = self._marks.embedding_tag(tenant)
        found: list[Embedding] = await self._direct_embedder.call("embed", [text], tag)
        return found[0].vector if found[0].is_whole else None

    def _queue(self, pending: Pending) -> None:
        """Behind an open breaker nothing is written: embedding and trying would only slow what is answered
        meanwhile."""
        if self._breaker.is_open:
            self.counters.dropped += 1
            return
        try:
            self._writes.put_nowait(pending)
        except asyncio.QueueFull:
            self.counters.dropped += 1

    def _count(self, found: LookUp) -> None:
        if isinstance(found, Miss):
            self.counters.misses += 1
        elif found.similarity is None:
            self.counters.exact += 1
        else:
            self.counters.semantic += 1

    def _failed(self, error: Exception) -> None:
        self.counters.failures += 1
        was_open = self._breaker.is_open
        self._breaker.failed(time.monotonic())
        if self._breaker.is_open and not was_open:
            logger.warning(
                "look-up failed: %r; the breaker is open, requests go on as misses", cause_of(error)
            )

    async def _write_forever(self) -> None:
        while True:
            pending = await self._writes.get()
            try:
                async with self._in_time():
                    await self._settle(pending)
            except Exception as error:  # an answer that is not stored is only a miss later
                # Not the breaker's business: a store that cannot be written may still answer.
                self.counters.failures += 1
                logger.warning("the cache lost a %s: %r", type(pending).__name__, cause_of(error))

    async def _settle(self, pending: Pending) -> None:
        match pending:
            case PendingWrite():
                await self._write(pending)
            case PendingComparison(probe, fresh):
                await self._cache.observe.remote(probe, fresh)
            case PendingVerdict(entry_id, text, serves):
                await self._cache.judged.remote(entry_id, text, serves)

    async def _write(self, pending: PendingWrite) -> None:
        vector = pending.vector
        if vector is None and pending.semantic:
            vector = await self._embed(pending.entry.text, pending.entry.tenant)
        await self._cache.put.remote(replace(pending.entry, vector=vector))
        self.counters.stored += 1

    def _follow(self, epoch: int) -> bool:
        """Take note of the store's epoch; ``False`` if it is older than what is known here."""
        if self._epoch is not None and epoch < self._epoch:
            return False
        if self._epoch is not None and epoch > self._epoch:
            self._exact.clear()
        self._epoch = epoch
        return True

    async def _tell_uses(self) -> None:
        """What answers from memory here must not look unused to the store."""
        uses, self._used = self._used, Counter()
        if uses:
            async with self._in_time():
                await self._cache.used.remote(uses)

    async def _follow_epoch(self) -> None:
        """Forget what is in memory when anybody purged the store."""
        while True:
            try:
                self._follow((await self.stats()).epoch)
                await self._tell_uses()
            except Exception as error:  # the store is away; look-ups notice and open the breaker
                logger.debug("cache epoch not known: %s", error)
            await asyncio.sleep(EPOCH_PERIOD_S)
