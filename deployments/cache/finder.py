"""Finds the entry that answers a query: the same text, else the nearest entry that passes the decision."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from uuid import UUID

from deployments.cache.learning import CacheLearning
from deployments.cache.store import CacheStore, Match
from serve_app.cache.decision import Decision, Verdict
from serve_app.cache.entry import CacheEntry, CacheQuery, Doubt, Hit, LookUp, Miss, Probe, without_evidence
from serve_app.cache.verdicts import Verdicts
from serve_app.settings import CacheSettings

IN_DOUBT = "in-doubt"
"""The miss reason when the verifier is not sure and the served model has not judged the pair yet."""

READINGS = 512
"""The number of texts whose analysis stays in memory: a few KB each."""

CANDIDATES = 3
"""The number of near entries that the decision judges; the first one that it accepts answers."""


class EntryFinder:
    """Asks the store, the decision, the served model's verdicts and the learned bound, in this order. It owns
    the verdicts, and counts why near entries were refused."""

    def __init__(self, settings: CacheSettings, decision: Decision, learning: CacheLearning) -> None:
        self._settings = settings
        self._decision = decision
        self._learning = learning
        # One stored text is compared with many questions, and one question with several stored texts.
        self._read = lru_cache(READINGS)(decision.read)
        self._verdicts = Verdicts()
        self._refused: Counter[str] = Counter()

    @property
    def refused(self) -> Mapping[str, int]:
        """How often the nearest refused entry was refused, by reason."""
        return dict(self._refused)

    def judged(self, entry_id: UUID, text: str, serves: bool) -> None:
        """Record the served model's verdict: whether an entry's answer serves a text."""
        self._verdicts.put(entry_id, text, serves)

    async def find(self, store: CacheStore, query: CacheQuery, now: float) -> LookUp:
        """The answering entry with its evidence, or why there is none; ``now`` is in Unix seconds.

        Raises:
            StoreError: the store failed.
        """
        near: list[Match] = []
        if query.vector is None:
            same = await store.get(query.entry_id)
        else:
            same, near = await self._same_and_near(store, query, query.vector, now)
        if same is not None and same.is_fresh(now, query.max_age_s):
            return Hit(same)
        if not near:
            return self._first_that_answers(query, near, ())
        began_ns = time.perf_counter_ns()
        verdicts = self._verdicts_on(query, near)
        if self._decision.is_slow:
            verdicts = await asyncio.to_thread(list, verdicts)
        found = self._first_that_answers(query, near, verdicts)
        return replace(found, decided_ns=time.perf_counter_ns() - began_ns)

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
                doubts.append(Doubt(without_evidence(match.entry), match.similarity, score))
        self._refused.update(reasons[:1])
        return Miss(next(iter(reasons), None), next(iter(probes), None), next(iter(doubts), None))

    def _second_opinion(self, match: Match, verdict: Verdict, text: str) -> str | None:
        """Why the decision or, if it may be asked, the served model refuses the entry; ``None`` if neither
        does."""
        asking = self._settings.ask_model
        score = verdict.scores.get(self._decision.scale)
        if asking is None or score is None or not self._is_doubtful(verdict, score, asking.from_score):
            return verdict.reason
        serves = self._verdicts.get(match.entry.entry_id, text)
        if serves is not None:
            return None if serves else "model"
        tokens = match.entry.answer.usage.completion_tokens
        return IN_DOUBT if tokens >= asking.min_answer_tokens else verdict.reason

    def _is_doubtful(self, verdict: Verdict, score: float, from_score: float) -> bool:
        """Whether only the verifier objects, and not by much, or only a guard that is not sure."""
        return verdict.unsure or (verdict.reason == self._decision.scale and score >= from_score)
