"""Turns comparisons of answers and people's reports into what the cache learns."""

from __future__ import annotations

from uuid import UUID

from deployments.cache.learning import CacheLearning
from deployments.cache.session import StoreSession
from deployments.cache.store import StoreError
from serve_app.cache.bound import EntryEvidence
from serve_app.cache.entry import Annotation, CacheEntry, Probe


class Feedback:
    """Updates the learned state and the evidence of the entries in the store. It takes the session's lock
    itself."""

    def __init__(self, session: StoreSession, learning: CacheLearning) -> None:
        self._session = session
        self._learning = learning

    async def observed(self, probe: Probe, fresh: str) -> None:
        """Learn from the engine's fresh answer to a text near an entry's text.

        Raises:
            StoreError: the store failed; nothing is learned.
        """
        entry = await self._session.entry_made_at(probe.entry_id, probe.made_at)
        if entry is None:
            return
        right = await self._learning.compare(fresh, entry.answer.text)
        if right is None:
            return
        async with self._session.writing:
            entry = await self._session.entry_made_at(probe.entry_id, probe.made_at)
            if entry is not None:
                evidence = self._learning.learn(entry.evidence, probe, right)
                await self._session.store.annotate(entry.entry_id, Annotation(evidence))

    async def repeated(self, before: CacheEntry, entry: CacheEntry) -> None:
        """Learn from two answers to the same text: ``entry`` has replaced ``before``.

        Raises:
            StoreError: the store failed.
        """
        right = await self._learning.compare(entry.answer.text, before.answer.text)
        if right is None:
            return
        self._learning.learn_repeat(right)
        if not (right and before.evidence):
            return
        async with self._session.writing:  # the new answer says the same, so the old evidence still holds
            if await self._session.entry_made_at(entry.entry_id, entry.created_at) is not None:
                await self._session.store.annotate(entry.entry_id, Annotation(before.evidence))

    async def reported(self, entry_id: UUID, right: bool, text: str | None) -> None:
        """Learn from a person's report on an entry; ``text`` is the text that it answered.

        Raises:
            StoreError: the store failed.
        """
        async with self._session.writing:
            entry = await self._session.store.get(entry_id)
            known = EntryEvidence() if entry is None else entry.evidence
            evidence = self._learning.report(entry_id, known, right, text)
            if entry is not None and evidence != known:
                await self._session.store.annotate(entry_id, Annotation(evidence))

    async def refused(self, tenant: str, entry_id: UUID, hashed: str, *, wrong: bool) -> bool:
        """Record that a user says the entry's answer is wrong for the text with this hash, or (``wrong`` is
        false) no longer says so. It affects only that pair: neither the entry's other texts, nor the bound
        that all tenants share. Returns ``False`` if the tenant has no such entry.

        Raises:
            StoreError: the store failed.
        """
        async with self._session.writing:
            entry = await self._session.store.get(entry_id)
            if entry is None or entry.tenant != tenant:
                return False
            evidence = entry.evidence.with_refused(hashed, wrong=wrong)
            if evidence != entry.evidence:
                await self._session.store.annotate(entry_id, Annotation(evidence))
        return True

    async def may_concern(self, entry_id: UUID) -> bool:
        """Whether the store has the entry; also true if the store fails, so that a block applies anyway."""
        try:
            return await self._session.store.get(entry_id) is not None
        except StoreError:
            return True
