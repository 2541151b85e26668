"""The SemanticCache deployment: it owns the store and decides what is a hit.

There is one replica, because the embedded store is one folder. If the store cannot be opened, the
application keeps running: the cache reports the error and every look-up is a miss.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from ray.serve.handle import DeploymentHandle

from deployments.cache.bounds import CacheRoom
from deployments.cache.decision import open_decision
from deployments.cache.learning import CacheLearning
from deployments.cache.note import CacheNote
from deployments.cache.store import CacheStore, Match, StoreError, StoreFull, open_store
from deployments.platform.serve import node_address
from deployments.wire.direct_calls import DirectCalls, Method
from serve_app.cache.bound import EntryEvidence
from serve_app.cache.decision import Verdict
from serve_app.cache.entry import (
    Annotation,
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
from serve_app.cache.eviction import Bounds
from serve_app.cache.verdicts import Verdicts
from serve_app.settings import CacheSettings
from serve_app.wire.calls import CACHE
from serve_app.wire.private_address import PrivateAddress

logger = logging.getLogger("ray.serve")

SWEEP_PERIOD_S = 30.0
REOPEN_PERIOD_S = 5.0
REMEMBERED_PURGES = 1024
"""Purges kept in memory: far more than can happen while an answer waits in a gateway's write queue."""

IN_DOUBT = "in-doubt"
"""The miss reason when the verifier is not sure and the served model has not judged the pair yet."""

SAME_MOMENT_S = 1e-3
"""Two creation times closer than this are equal: the store may return a number with a different last bit."""

READINGS = 512
"""Texts whose words and word vectors stay in memory: about 20 KB each, 150 KB for the longest."""

CANDIDATES = 3
"""Near entries that the decision looks at; the first that it accepts answers."""


class SemanticCache:
    """Look-ups and writes. Look-ups run concurrently with everything; writes and purges run one at a time.

    Invariants: a look-up returns the epoch read before it asked the store, and never returns an entry that
    was purged before the look-up ended. No write runs between a purge and its record.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: CacheSettings,
        embedder: DeploymentHandle[Any],
        reopen_s: float = REOPEN_PERIOD_S,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        info = await embedder.describe.remote()
        self._settings = settings
        self._embedder = info
        self._decision = await asyncio.to_thread(open_decision, settings, info.source, info.dtype)
        # One stored text is compared with many questions, and one question with several stored texts.
        self._read = lru_cache(READINGS)(self._decision.read)
        self._learning = CacheLearning(
            settings.max_error_rate, self._decision.scale, embedder, self._decision.record
        )
        self._verdicts = Verdicts()
        self._refused: Counter[str] = Counter()
        self._reopen_s = reopen_s
        # After a restart the epoch must exceed all earlier ones; the clock serves if the store is unreadable.
        self._epoch = clock_ns()
        self._note: CacheNote | None = None
        self._purges: deque[tuple[Selection, float]] = deque(maxlen=REMEMBERED_PURGES)
        self._writing = asyncio.Lock()
        self._room = CacheRoom(
            Bounds(settings.max_entries, settings.max_bytes, settings.max_entries_per_tenant)
        )
        self._error = ""
        self._full: str | None = None
        self._direct: DirectCalls | None = None
        self._store = await self._try_open()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())

    async def address(self) -> PrivateAddress:
        """The address to which gateways send look-ups."""
        if self._direct is None:
            methods: dict[str, Method] = {"look_up": self.look_up, "stats": self.stats}
            self._direct = DirectCalls(CACHE, methods, node_address())
        return self._direct.address

    async def look_up(self, query: CacheQuery) -> LookUp:
        """Find the entry that answers the query: the same text, else a near one if the query has a vector.
        A miss says why the nearest entry was refused.

        Raises:
            StoreError: the store failed; the gateway counts this and continues without the cache.
        """
        epoch = self._epoch
        try:
            found = await self._find(query, time.time())
        except StoreFull:  # a full disk is not a failure: it must not open the gateways' breakers
            return Miss()
        if isinstance(found, Miss):
            return self._without_purged(found, epoch)
        if self._was_purged(found.entry):
            return Miss()
        self._room.used({found.entry.entry_id: 1})
        return replace(found, entry=_bare(found.entry), epoch=epoch)

    async def put(self, entry: CacheEntry) -> None:
        """Store an entry, and evict the least valuable entries if a bound is exceeded. If it replaces an
        answer to the same text, the two are compared, to learn how well answers can be compared. If the disk
        is full, nothing is stored."""
        async with self._writing:
            if self._was_purged(entry):
                return
            store = self._opened()
            try:
                before = await store.get(entry.entry_id) if self._learning.learns else None
                await store.put(self._room.valued(entry))
            except StoreFull as error:  # the store's log says so, once
                self._full = str(error)
                return
            self._full = None
            await self._room.take(store, entry)
        if before is not None:
            await self._learn_from_repeat(before, entry)

    async def judged(self, entry_id: UUID, text: str, serves: bool) -> None:
        """Record the served model's verdict: whether an entry's answer serves a text."""
        self._verdicts.put(entry_id, text, serves)

    async def used(self, uses: Mapping[UUID, int]) -> None:
        """Record how often entries answered from a gateway's memory."""
        self._room.used(uses)

    async def observe(self, probe: Probe, fresh: str) -> None:
        """Learn from the engine's fresh answer to a text near an entry's text.

        Raises:
            StoreError: the store failed; nothing is learned.
        """
        entry = await self._still(probe.entry_id, probe.made_at)
        if entry is None:
            return
        right = await self._learning.compare(fresh, entry.answer.text)
        if right is None:
            return
        async with self._writing:
            entry = await self._still(probe.entry_id, probe.made_at)
            if entry is not None:
                evidence = self._learning.learn(entry.evidence, probe, right)
                await self._opened().annotate(entry.entry_id, Annotation(evidence))

    async def report(self, entry_id: UUID, right: bool, text: str | None) -> int | None:
        """Learn from a person's feedback on a semantic hit. An answer that was wrong for ``text`` is never
        given to that text again; if no text is given, the entry is dropped. The effect is durable when this
        returns.

        Returns the number of entries dropped, or ``None`` if there is no such entry (nothing is learned).

        Raises:
            StoreError: the store failed. The pair is blocked only until the next restart.
        """
        if not await self._may_hold(entry_id):
            return None
        if not right and text is None:
            dropped = await self.delete(Selection(entry_id=entry_id))
            self._learning.reported_wrong()
        else:
            dropped = 0
            await self._learn_from_report(entry_id, right, text)
        await self._learning.save(self._opened_note())
        return dropped

    async def _may_hold(self, entry_id: UUID) -> bool:
        """Whether the store has the entry. True if the store fails, so that a block applies anyway."""
        try:
            return await self._opened().get(entry_id) is not None
        except StoreError:
            return True

    async def select(self, selection: Selection, limit: int) -> list[CacheEntry]:
        return await self._opened().select(selection, limit)

    async def page(self, after: UUID | None, limit: int) -> tuple[list[CacheEntry], UUID | None]:
        """One page of all entries, ordered by id; see ``CacheStore.page``."""
        entries, following = await self._opened().page(after, limit)
        return [_bare(entry) for entry in entries], following

    async def delete(self, selection: Selection) -> int:
        """Remove entries here and, through the epoch, from every gateway's memory."""
        async with self._writing:
            try:
                return await self._opened().delete(selection)
            finally:
                self._purges.append((selection, time.time()))
                self._epoch += 1

    async def stats(self) -> CacheStats:
        """Counts and epoch. The epoch is returned even if the store fails: gateways must learn of purges."""
        if self._store is None:
            return CacheStats(0, self._epoch, "", self._error)
        location = self._store.location
        try:
            count = await self._store.count()
        except StoreError as error:
            return CacheStats(0, self._epoch, location, str(error), dict(self._refused))
        refused, learned = dict(self._refused), self._learning.summary()
        return CacheStats(count, self._epoch, location, self._full, refused, learned)

    async def __del__(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the sweeper and release the store. Serve calls this through ``__del__``."""
        self._sweeper.cancel()
        if self._direct is not None:
            await self._direct.stop()
        if self._store is not None:
            store, self._store = self._store, None
            try:
                await self._learning.save(self._opened_note())
            except StoreError as error:
                logger.warning("what the cache learned last is lost: %s", error)
            await store.close()

    def _opened_note(self) -> CacheNote:
        if self._note is None:
            raise StoreError(self._error)
        return self._note

    def _opened(self) -> CacheStore:
        if self._store is None:
            raise StoreError(self._error)
        return self._store

    async def _try_open(self) -> CacheStore | None:
        try:
            store = await open_store(self._settings, self._embedder.dimension, self._embedder.name)
            await self._load(store)
            return store
        except (StoreError, OSError) as error:
            if str(error) != self._error:  # log once, not on every attempt
                logger.error("serving without the cache: %s", error)
            self._error = str(error)
            return None

    async def _load(self, store: CacheStore) -> None:
        try:
            self._note = await CacheNote.read(store)
            await self._learning.load(self._note)
            self._epoch = await self._note.begin(self._epoch)
        except BaseException:
            await store.close()
            raise

    async def _still(self, entry_id: UUID, made_at: float) -> CacheEntry | None:
        """The entry, if it still holds the answer made at ``made_at``; another may have replaced it."""
        entry = await self._opened().get(entry_id)
        return entry if entry is not None and abs(entry.created_at - made_at) < SAME_MOMENT_S else None

    async def _learn_from_repeat(self, before: CacheEntry, entry: CacheEntry) -> None:
        right = await self._learning.compare(entry.answer.text, before.answer.text)
        if right is None:
            return
        self._learning.learn_repeat(right)
        if not (right and before.evidence.observations):
            return
        async with self._writing:  # the new answer says the same, so the old evidence still holds
            if await self._still(entry.entry_id, entry.created_at) is not None:
                await self._opened().annotate(entry.entry_id, Annotation(before.evidence))

    async def _learn_from_report(self, entry_id: UUID, right: bool, text: str | None) -> None:
        async with self._writing:
            entry = await self._opened().get(entry_id)
            known = EntryEvidence() if entry is None else entry.evidence
            evidence = self._learning.report(entry_id, known, right, text)
            if entry is not None and evidence != known:
                await self._opened().annotate(entry_id, Annotation(evidence))

    def _was_purged(self, entry: CacheEntry) -> bool:
        """Whether a later purge covers the entry. Such an entry was still in a gateway's write queue when the
        purge ran, or in a cancelled write from here to the store."""
        return any(entry.created_at <= when and what.fits(entry) for what, when in self._purges)

    async def _sweep_forever(self) -> None:
        """Free the space of expired entries (they never answer). If the store could not be opened, try again:
        the previous replica may still have held its lock."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_S if self._store is not None else self._reopen_s)
            if self._store is None:
                self._store = await self._try_open()
                continue
            try:
                await self._store.delete_expired(time.time())
                await self._learning.save(self._opened_note())
                await self._room.note_uses(self._store)
                await self._room.recount(self._store)
            except StoreFull:
                continue
            except StoreError as error:
                logger.warning("cache sweep failed: %s", error)

    async def _find(self, query: CacheQuery, now: float) -> LookUp:
        store = self._opened()
        near: list[Match] = []
        if query.vector is None:
            same = await store.get(query.entry_id)
        else:
            same, near = await self._same_and_near(store, query, query.vector, now)
        if same is not None and same.is_fresh(now, query.max_age_s):
            return Hit(same)
        verdicts = self._verdicts_on(query, near)
        if self._decision.is_slow and near:
            verdicts = await asyncio.to_thread(list, verdicts)
        return self._first_that_answers(query, near, verdicts)

    async def _same_and_near(
        self, store: CacheStore, query: CacheQuery, vector: bytes, now: float
    ) -> tuple[CacheEntry | None, list[Match]]:
        """Fetch by id and by vector at once: with a Qdrant server both take one round trip."""
        oldest = 0.0 if query.max_age_s is None else now - query.max_age_s
        # A stale near entry does not answer: the refresh would fetch an answer to a different text.
        alive = now + self._settings.stale_s
        return await asyncio.gather(
            store.get(query.entry_id),
            store.nearest(query.partition, vector, alive, oldest, CANDIDATES),
        )

    def _verdicts_on(self, query: CacheQuery, near: Sequence[Match]) -> Iterable[Verdict]:
        """Yield one verdict per match, computed lazily."""
        question = self._read(query.text)
        for match in near:
            candidate = self._read(match.entry.text)
            yield self._decision.judge(question, candidate, match.similarity, query.threshold)

    def _first_that_answers(
        self, query: CacheQuery, near: Sequence[Match], verdicts: Iterable[Verdict]
    ) -> LookUp:
        """The nearest entry that both the decision and the learned bound accept. Counts the reason why the
        nearest refused entry was refused."""
        scale = self._decision.scale
        reasons: list[str] = []
        probes: list[Probe] = []
        doubts: list[Doubt] = []
        for match, verdict in zip(near, verdicts, strict=False):  # a lazy iterator, as long as ``near``
            score = verdict.scores.get(scale, match.similarity)
            reason = self._second_opinion(match, verdict, query.text)
            if reason is not None and reason != IN_DOUBT:
                reasons.append(reason)
                continue
            permission = self._learning.ask(match.entry, score, query.text)
            if reason is None and permission.refusal is None:
                return Hit(match.entry, match.similarity, score=verdict.scores.get(scale))
            reasons.append(permission.refusal or IN_DOUBT)
            if permission.probe is not None:
                probes.append(permission.probe)
            if permission.refusal is None:
                doubts.append(Doubt(_bare(match.entry), match.similarity, score))
        self._refused.update(reasons[:1])
        return Miss(next(iter(reasons), None), next(iter(probes), None), next(iter(doubts), None))

    def _without_purged(self, miss: Miss, epoch: int) -> Miss:
        doubt = miss.doubt
        if doubt is None or self._was_purged(doubt.entry):
            return replace(miss, doubt=None)
        return replace(miss, doubt=replace(doubt, epoch=epoch))

    def _second_opinion(self, match: Match, verdict: Verdict, text: str) -> str | None:
        """Why the decision or, if it may be asked, the served model refuses the entry; ``None`` if neither
        does."""
        asking = self._settings.ask_model
        score = verdict.scores.get(self._decision.scale)
        if (
            asking is None
            or score is None
            or verdict.reason != self._decision.scale
            or score < asking.from_score
        ):
            return verdict.reason
        serves = self._verdicts.get(match.entry.entry_id, text)
        if serves is not None:
            return None if serves else "model"
        tokens = match.entry.answer.usage.completion_tokens
        return IN_DOUBT if tokens >= asking.min_answer_tokens else verdict.reason


def _bare(entry: CacheEntry) -> CacheEntry:
    """The entry without its evidence, which never leaves the cache."""
    return replace(entry, evidence=EntryEvidence())
