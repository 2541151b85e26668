"""Look-ups in the store: within a budget, behind a circuit breaker.

A cache that is broken or slow costs at most the budget, then nothing: the breaker opens and requests flow as
misses. No failure here reaches a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from deployments.gateway.lookup.counters import CacheCounters
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.shards import CacheShards, Shard
from deployments.gateway.request.tenant_room import TenantRoom
from deployments.platform.serve import cause_of
from deployments.wire.direct_calls import DirectClient
from serve_app.breaker import Breaker
from serve_app.cache.entry import CacheQuery, Doubt, Hit, LookUp, Miss
from serve_app.cache.expiry import Expiry
from serve_app.cache.keys import CacheKey
from serve_app.cache.normal import Normaliser
from serve_app.embedding import Embedding
from serve_app.gateways.announced import Announced
from serve_app.request.cache_controls import CacheControls
from serve_app.request.tenant_marks import TenantMarks
from serve_app.request.timing import Timeline

Keep = Callable[[bytes], None]
"""Called with the text's vector as soon as it is made, so that it is kept even if the look-up is cancelled
later."""

MOST_CHARACTERS = 65_536
"""The longest text that is embedded. No embedder reads so much; before it cuts a text, its tokenizer reads
all of it, seconds for tens of MB, and other look-ups wait."""

MOST_AT_ONCE = 64
"""Look-ups of one tenant. Others wait in the same line, and more than these are hardly answered within the
budget: they would time out, and open the breaker for every tenant."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Asking:
    """One look-up."""

    key: CacheKey
    controls: CacheControls
    timeline: Timeline
    keep: Keep
    announced: Announced | None


class Embed:
    """The vector of one text's normal form."""

    def __init__(self, embedder: DirectClient, marks: TenantMarks, normal: Normaliser) -> None:
        self._embedder = embedder
        self._normal = normal
        self._marks = marks

    async def __call__(self, text: str, tenant: str) -> bytes | None:
        """``None`` for a text that is too long for the embedder: two texts that differ only in the part that
        it did not read would have the same vector."""
        if len(text) > MOST_CHARACTERS:
            return None
        tag = self._marks.embedding_tag(tenant)
        found: list[Embedding] = await self._embedder.call("embed", [self._normal(text)], tag)
        return found[0].vector if found[0].is_whole else None


class LookUps:
    """Asks the embedder, then the shard of the request's partition. ``budget_s`` is for both. Each shard has
    a breaker of its own: one that is broken costs the others nothing."""

    def __init__(
        self,
        shards: CacheShards,
        embed: Embed,
        memory: Memory,
        *,
        expiry: Expiry,
        budget_s: float,
        counters: CacheCounters,
    ) -> None:
        self._shards = shards
        self._embed = embed
        self._memory = memory
        self._expiry = expiry
        self._budget_s = budget_s
        self._counters = counters
        self._trials: set[asyncio.Task[LookUp]] = set()
        self._room = TenantRoom(None, MOST_AT_ONCE)

    async def find(
        self,
        key: CacheKey,
        controls: CacheControls,
        timeline: Timeline,
        keep: Keep,
        announced: Announced | None = None,
    ) -> LookUp:
        """What the store has; never raises, never takes longer than the budget. ``announced``: the
        request as others may join it."""
        found: LookUp = Miss()
        try:
            found = await self._behind_breaker(Asking(key, controls, timeline, keep, announced))
        finally:
            self._count(found)
        return found

    def judged(self, doubt: Doubt, serves: bool) -> Hit | None:
        """The served model's verdict on a near entry. Returns the hit if it serves, unless the entry may have
        been purged in the meantime."""
        self._counters.asked += 1
        if not serves or self._memory.is_purged(doubt.entry.partition, doubt.epoch):
            return None
        self._counters.misses -= 1
        self._counters.near_misses -= 1
        self._counters.semantic += 1
        return Hit(doubt.entry, doubt.similarity, doubt.epoch, doubt.score)

    def stop(self) -> None:
        for task in self._trials:
            task.cancel()

    async def _behind_breaker(self, asked: Asking) -> LookUp:
        if not self._room.free(asked.key.tenant):
            return Miss()
        shard = self._shards.of(asked.key.partition)
        is_trial = shard.breaker.is_open
        if not shard.breaker.allows(time.monotonic()):
            return Miss()
        asking = self._within_budget(asked, shard)
        return await (self._as_trial(asking) if is_trial else asking)

    async def _as_trial(self, asking: Coroutine[Any, Any, LookUp]) -> LookUp:
        """An open breaker waits for the result, so the trial goes on when its request no longer waits: in a
        race the engine's first byte often comes first."""
        task = asyncio.get_running_loop().create_task(asking)
        self._trials.add(task)
        task.add_done_callback(self._trials.discard)
        return await asyncio.shield(task)

    async def _within_budget(self, asked: Asking, shard: Shard) -> LookUp:
        try:
            with self._room.take(asked.key.tenant):
                async with asyncio.timeout(self._budget_s):
                    found = await self._ask(asked, shard)
        except Exception as error:  # no failure of the embedder or the store may fail a request
            self._failed(error, shard.breaker)
            return Miss()
        shard.breaker.succeeded()
        return found

    async def _ask(self, asked: Asking, shard: Shard) -> LookUp:
        key, timeline, vector = asked.key, asked.timeline, None
        if key.semantic:
            with timeline.step("embed"):
                vector = await self._embed(key.text, key.tenant)
            if vector is not None:
                asked.keep(vector)
        with timeline.step("search"):
            query = _query(asked, vector)
            found: LookUp = await shard.direct.call("look_up", query)
        if found.decided_ns:  # it was the last part of the search
            timeline.add_lasting("decide", timeline.clock() - found.decided_ns, found.decided_ns)
        if isinstance(found, Miss) or found.similarity is not None:
            return found
        self._memory.put_found(found.entry, found.epoch)
        return replace(found, stale=self._expiry.is_stale(found.entry.expires_at, time.time()))

    def _count(self, found: LookUp) -> None:
        if isinstance(found, Miss):
            self._counters.misses += 1
            self._counters.near_misses += found.is_near
        elif found.similarity is None:
            self._counters.exact += 1
        else:
            self._counters.semantic += 1

    def _failed(self, error: Exception, breaker: Breaker) -> None:
        self._counters.failures += 1
        was_open = breaker.is_open
        breaker.failed(time.monotonic())
        if breaker.is_open and not was_open:
            logger.warning(
                "look-up failed: %r; the breaker is open, requests go on as misses", cause_of(error)
            )


def _query(asked: Asking, vector: bytes | None) -> CacheQuery:
    key, controls = asked.key, asked.controls
    text = "" if vector is None else key.text  # an exact look-up reads none
    return CacheQuery(
        key.entry_id, key.partition, text, vector, controls.threshold, controls.max_age_s, asked.announced
    )
