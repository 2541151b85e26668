"""The SemanticCache deployment: the calls that gateways make, and the objects that answer them.

Each shard is a deployment of one replica, which owns its partitions and shares no state with others. If the
store cannot be opened, the application keeps running: the cache reports the error, and look-ups are misses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from ray.serve.handle import DeploymentHandle

from deployments.cache.bounds import CacheRoom
from deployments.cache.decision import open_decision
from deployments.cache.feedback import Feedback
from deployments.cache.finder import EntryFinder
from deployments.cache.learning import CacheLearning
from deployments.cache.session import StoreSession
from deployments.cache.store import StoreError, StoreFull
from deployments.cache.sweeper import Sweeper
from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls, DirectlyCalled, Method
from serve_app.cache.entry import (
    CacheEntry,
    CacheQuery,
    CacheStats,
    LookUp,
    Miss,
    Probe,
    Selection,
    without_evidence,
)
from serve_app.cache.eviction import Bounds
from serve_app.cache.purges import PurgeLog
from serve_app.cache.shards import Place
from serve_app.gateways.announced import AnnouncedRequests
from serve_app.gateways.beginnings import Beginnings, Told
from serve_app.settings import CacheSettings
from serve_app.settings.network import ANY_PORT
from serve_app.wire.calls import CACHE
from serve_app.wire.private_address import PrivateAddress

REOPEN_PERIOD_S = 5.0


class SemanticCache(DirectlyCalled):
    """Look-ups and writes. Look-ups run concurrently with everything; writes and purges run one at a time.

    Invariants: a look-up returns the epoch that was read before it asked the store, and never returns an
    entry that was purged before the look-up ended. No write runs between a purge and its record.

    It has many methods because Serve calls one class, and gateways make that many calls. The work is done by
    the session (the store), the finder (look-ups), the room (bounds) and the feedback (learning).
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: CacheSettings,
        embedder: DeploymentHandle[Any],
        reopen_s: float = REOPEN_PERIOD_S,
        clock_ns: Callable[[], int] = time.time_ns,
        *,
        shard: int = 0,
        ports: range = ANY_PORT,
    ) -> None:
        self._ports = ports
        place = Place(shard, settings.shards, settings.is_shared)
        info = await embedder.describe.remote()
        decision = await asyncio.to_thread(open_decision, settings, info.source)
        self._learning = CacheLearning(settings.max_error_rate, decision.measure, embedder, decision.record)
        self._finder = EntryFinder(settings, decision, self._learning)
        # After a restart the epoch must exceed all earlier ones; the clock helps if the store is unreadable.
        self._purges = PurgeLog(clock_ns())
        self._session = StoreSession(settings, info, self._learning, self._purges, place)
        self._feedback = Feedback(self._session, self._learning)
        bounds = Bounds(settings.max_entries, settings.max_bytes, settings.max_entries_per_tenant)
        self._room = CacheRoom(bounds, place)
        self._announced = AnnouncedRequests()
        self._beginnings = Beginnings()
        self._full: str | None = None
        self._direct: DirectCalls | None = None
        await self._session.open()
        sweeper = Sweeper(self._session, self._room, reopen_s)
        self._sweeping = asyncio.get_running_loop().create_task(sweeper.run())

    async def address(self) -> PrivateAddress:
        """The address to which gateways send look-ups."""
        if self._direct is None:
            methods: dict[str, Method] = {
                "look_up": self.look_up,
                "stats": self.stats,
                "tell": self.tell,
                "beginning": self.beginning,
            }
            self._direct = DirectCalls(
                CACHE, methods, node_address(), call_tracer("cache"), ports=self._ports
            )
        return self._direct.address

    async def look_up(self, query: CacheQuery) -> LookUp:
        """Find the entry that answers the query: the same text, else a near one if the query has a vector.
        A miss says why the nearest entry was refused, and whether another gateway, which asked first, is
        answering the same request.

        Raises:
            StoreError: the store failed; the gateway counts this and continues without the cache.
        """
        if query.announced is not None:
            for ended in query.announced.ended:  # whatever is found: they are told only once
                self._announced.end(ended)
        found = await self._find(query)
        if isinstance(found, Miss) and query.announced is not None:
            at = self._announced.meet(query.announced, time.monotonic())
            return found if at is None else replace(found, answered_at=at)
        return found

    async def _find(self, query: CacheQuery) -> LookUp:
        epoch = self._purges.epoch
        try:
            found = await self._finder.find(self._session.store, query, time.time())
        except StoreFull:  # a full disk is not a failure: it must not open the gateways' breakers
            return Miss()
        if isinstance(found, Miss):
            doubt = found.doubt
            if doubt is None or self._purges.covers(doubt.entry):
                return replace(found, doubt=None)
            return replace(found, doubt=replace(doubt, epoch=epoch))
        if self._purges.covers(found.entry):
            return Miss()
        self._room.used({found.entry.entry_id: 1})
        return replace(found, entry=without_evidence(found.entry), epoch=epoch)

    async def tell(self, told: Told) -> None:
        """What the streams of a gateway have said since it told the last time."""
        self._beginnings.hear(told, time.monotonic())

    async def beginning(self, key: bytes, gateway: str) -> bytes:
        """What the stream of a request has said at a gateway that is lost; it is given once."""
        return self._beginnings.take(key, gateway, time.monotonic())

    async def put(self, entry: CacheEntry) -> None:
        """Store an entry, and evict the least valuable entries if a bound is exceeded. If it replaces an
        answer to the same text, the two answers are compared, to learn how reliable comparisons are. If the
        disk is full, nothing is stored."""
        async with self._session.writing:
            if self._purges.covers(entry):
                return
            store = self._session.store
            try:
                before = await store.get(entry.entry_id) if self._learning.learns else None
                await store.put(self._room.valued(entry))
            except StoreFull as error:  # the store logs this once
                self._full = str(error)
                return
            self._full = None
            await self._room.take(store, entry)
        if before is not None:
            await self._feedback.repeated(before, entry)

    async def judged(self, entry_id: UUID, text: str, serves: bool) -> None:
        """Record the served model's verdict: whether an entry's answer serves a text."""
        self._finder.judged(entry_id, text, serves)

    async def used(self, uses: Mapping[UUID, int]) -> None:
        """Record how often entries answered from a gateway's memory."""
        self._room.used(uses)

    async def observe(self, probe: Probe, fresh: str) -> None:
        """Learn from the engine's fresh answer to a text near an entry's text.

        Raises:
            StoreError: the store failed; nothing is learned.
        """
        await self._feedback.observed(probe, fresh)

    async def report(self, entry_id: UUID, right: bool, text: str | None) -> int | None:
        """Learn from a person's feedback on a semantic hit. An answer that was wrong for ``text`` is never
        given to that text again; if no text is given, the entry is dropped. The effect is durable when this
        returns.

        Returns the number of entries dropped, or ``None`` if there is no such entry (nothing is learned).

        Raises:
            StoreError: the store failed. The pair is blocked only until the next restart.
        """
        if not await self._feedback.may_concern(entry_id):
            return None
        if not right and text is None:
            dropped = await self.delete(Selection(entry_id=entry_id))
            self._learning.reported_wrong()
        else:
            dropped = 0
            await self._feedback.reported(entry_id, right, text)
        await self._session.save_learning()
        return dropped

    async def refuse(self, tenant: str, entry_id: UUID, hashed: str, wrong: bool) -> bool:
        """Learn from a user's feedback on a semantic hit of the user's own tenant; see ``Feedback.refused``.

        Raises:
            StoreError: the store failed.
        """
        return await self._feedback.refused(tenant, entry_id, hashed, wrong=wrong)

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._session.store.select(selection, limit)

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """One page of all entries, ordered by id; see ``CacheStore.page``."""
        entries, following = await self._session.store.page(after, limit)
        return [without_evidence(entry) for entry in entries], following

    async def delete(self, selection: Selection) -> int:
        """Remove entries here and, through the epoch, from every gateway's memory."""
        async with self._session.writing:
            try:
                return await self._session.store.delete(selection)
            finally:
                self._purges.record(selection, time.time())
                self._beginnings.clear()

    async def stats(self) -> CacheStats:
        """The counts and the epoch. The epoch is returned even if the store fails: gateways must learn of
        purges."""
        self._beginnings.forget_the_silent(time.monotonic())  # gateways ask every second
        try:
            store = self._session.store
        except StoreError as error:
            return CacheStats(0, self._purges.epoch, "", str(error))
        try:
            count = await store.count()
        except StoreError as error:
            return CacheStats(0, self._purges.epoch, store.location, str(error), self._finder.refused)
        refused, learned = self._finder.refused, self._learning.summary()
        return CacheStats(count, self._purges.epoch, store.location, self._full, refused, learned)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the sweeper and release the store. Serve calls this through ``__del__``."""
        self._sweeping.cancel()
        if self._direct is not None:
            await self._direct.stop()
        await self._session.close()
